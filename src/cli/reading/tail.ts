/**
 * `tutti tail`: shows the latest events of a record and, with `--follow`, new events. Detects
 * misspelled values of its filter.
 */

import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { TaskNames } from '../../views/panel.ts'
import { ScopeFilter } from '../../views/panels/scopes.ts'
import { cutText, shortName, timeText } from '../../views/readable.ts'
import { eventDetails } from '../../views/texts/event-details.ts'
import { closeSync, readSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { findChain, isPipe } from '../../checkpoint/chain.ts'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { EventLine } from '../../checkpoint/format.ts'
import { type LinePosition, readBatches, type ReadSummary } from '../../checkpoint/reader.ts'
import { sleep, systemClock } from '../../foundation/clock.ts'
import { openRegularFileSync, statOf } from '../../foundation/regular-file.ts'
import { findRecord, isNotARecord, notARecordError } from '../../record/find-record.ts'
import { exitCodes, neverStop, stopOnSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { lostSessionNote } from './open-record.ts'
import { RecordWriters } from './record-writer.ts'

export interface TailOptions extends FilterOptions {
  readonly lines: number
  readonly follow?: boolean
}

const pollIntervalMs = 200
/** The search for the latest events starts this many bytes before the end of the file. */
const initialWindowBytes = 2 ** 20

/**
 * Shows the latest events. With `--follow`, continues until the session or its process ends, a
 * signal arrives, or the output is closed. Shows all files of a resumed run as one.
 */
export async function tail(source: string, options: TailOptions, output: Output): Promise<number> {
  const path = await findRecord(source)
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  // The identity is read before the events, so that a replacement of the file in between is
  // detected.
  const identity = new FileIdentity(file)
  const stop = options.follow === true ? stopOnSignal(output.closed) : neverStop
  const filter = new EventFilter(options)
  try {
    const { latest, last } = await readLatest(files, options.lines, filter, output.closed)
    const isOpen = !last.hasEnded && !isPipe(path) && !isCompressed(path)
    const isFollowed = options.follow === true && isOpen
    // With `--lines 0`, only a part of the record was read, so unknown values cannot be detected.
    if (options.lines > 0) await filter.expectKnownValues(isFollowed)
    for (const one of latest) show(one, output)
    if (!isFollowed) return exitCodes.ok
    await follow(file, { identity, last, filter, output, signal: stop.signal })
    return await stop.exitCode()
  } finally {
    stop.release()
  }
}

interface TailPosition {
  readonly end: LinePosition
  readonly hasEnded: boolean
  /** `null` before the first event. */
  readonly sessionId: string | null
}

interface NamedEvent {
  readonly event: EventLine
  readonly name: string
}

interface LatestEvents {
  readonly latest: readonly NamedEvent[]
  readonly last: TailPosition
}

/**
 * Reads the latest events. Starts with the last file and reads as little as possible, unless the
 * filter needs all events.
 */
async function readLatest(
  files: readonly string[],
  lines: number,
  filter: EventFilter,
  closed: AbortSignal,
): Promise<LatestEvents> {
  const read = async (file: string, max: number): Promise<LatestEvents> =>
    await readFileEnd(file, max, filter, closed)
  if (filter.needsAllEvents) {
    let found = await read(files[0] ?? '', lines)
    for (const file of files.slice(1)) {
      const next = await read(file, lines)
      found = { ...next, latest: takeLatest([...found.latest, ...next.latest], lines) }
    }
    return found
  }
  let found = await read(files.at(-1) ?? '', lines)
  for (const file of files.slice(0, -1).toReversed()) {
    if (found.latest.length >= lines) break
    const { latest } = await read(file, lines - found.latest.length)
    found = { ...found, latest: [...latest, ...found.latest] }
  }
  return found
}

const takeLatest = (events: readonly NamedEvent[], lines: number): readonly NamedEvent[] =>
  lines === 0 ? [] : events.slice(-lines)

async function readFileEnd(
  path: string,
  lines: number,
  filter: EventFilter,
  closed: AbortSignal,
): Promise<LatestEvents> {
  const isPlain = !filter.needsAllEvents && !isPipe(path) && !isCompressed(path)
  const size = isPlain ? (statOf(path)?.size ?? 0) : 0
  for (let window = initialWindowBytes; ; window *= 8) {
    const from = Math.max(0, size - window)
    const found = await readFrom(path, from, { lines, filter, closed })
    if (from === 0 || found.latest.length >= lines) return found
  }
}

/** Reads the latest events after `offset`. Skips the first line if `offset` is inside of it. */
async function readFrom(
  path: string,
  offset: number,
  { lines, filter, closed }: { lines: number; filter: EventFilter; closed: AbortSignal },
): Promise<LatestEvents> {
  const latest: NamedEvent[] = []
  const batches = readBatches(path, {
    skipSpans: true,
    onlyWholeLines: true,
    signal: closed,
    ...(offset === 0 ? {} : { from: { line: 1, offset } }),
  })
  const { summary, hasEnded, sessionId } = await forEachEvent(batches, (event) => {
    const name = filter.names.nameOf(event)
    if (!filter.matches(event)) return
    latest.push({ event, name })
    if (latest.length > lines * 2) latest.splice(0, latest.length - lines)
  })
  if (offset === 0 && isNotARecord(path, summary)) throw notARecordError(path)
  return { latest: takeLatest(latest, lines), last: { end: summary.end, hasEnded, sessionId } }
}

async function forEachEvent(
  batches: ReturnType<typeof readBatches>,
  take: (event: EventLine) => void,
): Promise<Omit<TailPosition, 'end'> & { readonly summary: ReadSummary }> {
  let hasEnded = false
  let sessionId: string | null = null
  for (;;) {
    const batch = await batches.next()
    if (batch.done === true) return { summary: batch.value, hasEnded, sessionId }
    for (const line of batch.value) {
      if (line.section !== 'event') continue
      hasEnded = line.event_type === 'SessionEnded' || hasEnded
      sessionId = line.session_id
      take(line)
    }
  }
}

/** The number of bytes at the start of a record that contain its unique id. */
const headBytes = 512

class FileIdentity {
  readonly #path: string
  readonly #ino: number
  #head: Buffer

  constructor(path: string) {
    this.#path = path
    this.#ino = statSync(path).ino
    this.#head = this.#readHead()
  }

  /** The size of the file; `null` if the file was replaced or is shorter than `min`. */
  sizeIfSame(min: number): number | null {
    const stat = statOf(this.#path)
    if (stat === null || stat.ino !== this.#ino || stat.size < min) return null
    const head = this.#readHead()
    if (!head.subarray(0, this.#head.length).equals(this.#head)) return null
    this.#head = head
    return stat.size
  }

  #readHead(): Buffer {
    const bytes = Buffer.alloc(headBytes)
    try {
      const fd = openRegularFileSync(this.#path)
      try {
        return bytes.subarray(0, readSync(fd, bytes, 0, headBytes, 0))
      } finally {
        closeSync(fd)
      }
    } catch {
      return bytes.subarray(0, 0)
    }
  }
}

interface FollowParts {
  readonly identity: FileIdentity
  readonly last: TailPosition
  readonly filter: EventFilter
  readonly output: Output
  readonly signal: AbortSignal
}

async function follow(file: string, parts: FollowParts): Promise<void> {
  const { identity, last, filter, output, signal } = parts
  const writers = new RecordWriters()
  let now = last
  while (!signal.aborted) {
    // Checks the process before reading, because it may write and exit in between.
    const { sessionId } = now
    const isWritten = sessionId === null || (await writers.isWriting(dirname(file), sessionId))
    const size = identity.sizeIfSame(now.end.offset)
    if (size === null) return output.problem(`${file} was removed or replaced`)
    if (size > now.end.offset) now = await showNewEvents(file, now, filter, output)
    if (now.hasEnded) return
    if (!isWritten) return output.problem(lostSessionNote)
    await sleep(systemClock, pollIntervalMs, { signal }).catch(() => undefined)
  }
}

async function showNewEvents(
  path: string,
  { end: from, sessionId }: TailPosition,
  filter: EventFilter,
  output: Output,
): Promise<TailPosition> {
  const batches = readBatches(path, { skipSpans: true, onlyWholeLines: true, from })
  const found = await forEachEvent(batches, (event) => {
    const name = filter.names.nameOf(event)
    if (filter.matches(event)) show({ event, name }, output)
  })
  const { hasEnded, summary } = found
  return { end: summary.end, hasEnded, sessionId: found.sessionId ?? sessionId }
}

function show({ event, name }: NamedEvent, output: Output): void {
  if (!output.closed.aborted)
    output.result(event, [cutText(formatEvent(event, name, output.width), output.width)])
}

/** The minimum widths of a terminal for showing the date, and for showing the time. */
const minWidths = { date: 60, time: 40 }

function formatEvent(event: EventLine, name: string, width: number): string {
  const { event_type, event_time, task_id, node_id, attributes } = event
  const place = attributes['worker_id'] ?? event['worker_id'] ?? node_id
  const today = width < minWidths.date ? event_time : undefined
  const time = width < minWidths.time ? null : timeText(event_time, today)
  const parts = [time, event_type, task_id, name, place, ...eventDetails(event)]
  return parts.filter((part) => typeof part === 'string' && part !== '').join('  ')
}

interface FilterOptions {
  readonly type?: readonly string[]
  readonly task?: string
  readonly name?: string
  readonly node?: string
  readonly backend?: string
  readonly scope?: string
}

type FilterKind = Exclude<keyof FilterOptions, 'scope'>

/** A misspelled value is compared with at most this many values. */
const maxCompared = 1000

interface RequestedValues {
  readonly kind: FilterKind
  readonly values: readonly string[]
  /** The values that occurred in events before the first match. */
  readonly seen: Set<string>
}

class EventFilter {
  readonly names = new TaskNames()
  readonly #scope: ScopeFilter | null
  readonly #requested: readonly RequestedValues[]
  /** The tasks with the requested name, because not all of their events contain it. */
  readonly #namedTasks = new Set<string>()
  #hasMatched = false

  constructor({ scope, type, task, name, node, backend }: FilterOptions) {
    this.#scope = scope === undefined ? null : new ScopeFilter(scope)
    const byKind = { type, task, name, node, backend }
    this.#requested = Object.entries(byKind).flatMap(([kind, given]) =>
      given === undefined
        ? []
        : [{ kind: kind as FilterKind, values: [given].flat(), seen: new Set<string>() }],
    )
  }

  get needsAllEvents(): boolean {
    return this.#scope !== null || this.#requested.some(({ kind }) => kind === 'name')
  }

  /** Whether the event is selected. Must be called for every event in the order of the record. */
  matches(event: EventLine): boolean {
    const isInScope = this.#scope?.includes(event) !== false
    const isRequested = this.#requested.map((one) => this.#matchesKind(event, one))
    const isMatch = isInScope && !isRequested.includes(false)
    this.#hasMatched ||= isMatch
    return isMatch
  }

  /**
   * Throws a `ValueError` if no event has a requested value, which is then probably misspelled. If
   * the run is followed, throws only for event types that the library does not have.
   */
  async expectKnownValues(isFollowed: boolean): Promise<void> {
    this.#scope?.expectSeen(isFollowed)
    for (const { kind, values, seen } of this.#requested) {
      for (const value of values) {
        if (seen.has(value)) continue
        const types = kind === 'type' ? await loadEventTypes() : []
        if (types.includes(value)) continue
        const isOwnType = kind === 'type' && (!value.includes('.') || value.startsWith('tutti.'))
        if (!isOwnType && (isFollowed || this.#hasMatched)) continue
        const near = didYouMean(value, [...seen, ...types])
        throw new ValueError(`no event has the ${kind} "${value}"${near}`, {
          code: 'FilterError',
          field: `--${kind}`,
          got: value,
        })
      }
    }
  }

  #matchesKind(event: EventLine, { kind, values, seen }: RequestedValues): boolean {
    const { task_id: uid } = event
    const found = listValues(event, kind)
    for (const value of this.#hasMatched ? [] : found) {
      if (values.includes(value) || seen.size < maxCompared) seen.add(value)
    }
    const isMatch = found.some((value) => values.includes(value))
    if (kind !== 'name' || uid === null) return isMatch
    if (isMatch) this.#namedTasks.add(uid)
    return this.#namedTasks.has(uid)
  }
}

function listValues(
  { event_type, task_id, node_id, backend, attributes }: EventLine,
  kind: FilterKind,
) {
  if (kind === 'type') return [event_type]
  if (kind === 'task') return task_id === null ? [] : [task_id]
  if (kind === 'node') return node_id === null ? [] : [node_id]
  if (kind === 'backend') return [backend]
  return listNames(attributes)
}

function listNames(attributes: EventLine['attributes']): string[] {
  const given = [attributes['task_name'], attributes['tutti.name'], attributes['executable']]
  return given.flatMap((one) => (typeof one === 'string' ? [one, shortName(one)] : []))
}

async function loadEventTypes(): Promise<readonly string[]> {
  const [vocabulary, library, { ResourceUpdate }] = await Promise.all([
    import('../../events/vocabulary.ts'),
    import('../../events/library-events.ts'),
    import('../../events/resource-update.ts'),
  ])
  return [...Object.values(vocabulary), ...Object.values(library), ResourceUpdate].flatMap((one) =>
    'eventType' in one ? [one.eventType] : [],
  )
}
