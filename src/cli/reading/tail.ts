/** `tutti tail`: the latest events of a record, and with `--follow` new ones. */

import { cutText, firstLine, progressText, secondsText, timeText } from '../../views/readable.ts'
import { closeSync, readSync, statSync } from 'node:fs'
import { dirname } from 'node:path'
import { findChain, isPipe } from '../../checkpoint/chain.ts'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { EventLine } from '../../checkpoint/format.ts'
import { type LinePosition, readBatches, type ReadSummary } from '../../checkpoint/reader.ts'
import { sleep, systemClock } from '../../foundation/clock.ts'
import { openRegularFileSync, statOf } from '../../foundation/regular-file.ts'
import { findRecord } from '../../record/find-record.ts'
import { exitCodes, stopNever, stopOnSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { EventFilter, type FilterOptions } from './event-filter.ts'
import { foreignFile, isForeign, lostSession } from './open-record.ts'
import { RecordWriters } from './record-writer.ts'

export interface TailOptions extends FilterOptions {
  /** The number of latest matching events to show. */
  readonly lines: number
  readonly follow?: boolean
}

const pollMs = 200
/** The search for the latest events starts this many bytes before the end of the file. */
const firstWindow = 2 ** 20

/**
 * Stops when the session or its process ends, on a signal, or when the output is closed. With
 * `--json`, prints one JSON value per line. A resumed run is shown as one run with all its files.
 */
export async function tail(what: string, options: TailOptions, output: Output): Promise<number> {
  const path = await findRecord(what)
  const { files } = await findChain(path)
  const file = files.at(-1) ?? path
  // Taken before reading, because another file may replace this one.
  const identity = new FileIdentity(file)
  const stop = options.follow === true ? stopOnSignal(output.closed) : stopNever
  const filter = new EventFilter(options)
  try {
    const { latest, last } = await readLatest(files, options.lines, filter, output.closed)
    const isOpen = !last.hasEnded && !isPipe(path) && !isCompressed(path)
    const isFollowed = options.follow === true && isOpen
    // With `--lines 0` nothing was searched, so no value can be reported as unknown.
    if (options.lines > 0) await filter.expectKnown(isFollowed)
    for (const one of latest) show(one, output)
    if (!isFollowed) return exitCodes.ok
    await follow(file, { identity, last, filter, output, signal: stop.signal })
    return await stop.exitCode()
  } finally {
    stop.release()
  }
}

/** The position reached in a file. */
interface ReadSoFar {
  readonly end: LinePosition
  readonly hasEnded: boolean
  /** `null` before the first event. */
  readonly sessionId: string | null
}

interface NamedEvent {
  readonly event: EventLine
  readonly name: string
}

interface Latest {
  readonly latest: readonly NamedEvent[]
  /** The position in the last file. */
  readonly last: ReadSoFar
}

/** Reads backwards from the end of the run, and as little as possible. */
async function readLatest(
  files: readonly string[],
  lines: number,
  filter: EventFilter,
  closed: AbortSignal,
): Promise<Latest> {
  const read = async (file: string, max: number): Promise<Latest> =>
    await readFile(file, max, filter, closed)
  if (filter.needsAll) {
    let found = await read(files[0] ?? '', lines)
    for (const file of files.slice(1)) {
      const next = await read(file, lines)
      found = { ...next, latest: latestOf([...found.latest, ...next.latest], lines) }
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

const latestOf = (events: readonly NamedEvent[], lines: number): readonly NamedEvent[] =>
  lines === 0 ? [] : events.slice(-lines)

async function readFile(
  path: string,
  lines: number,
  filter: EventFilter,
  closed: AbortSignal,
): Promise<Latest> {
  const isPlain = !filter.needsAll && !isPipe(path) && !isCompressed(path)
  const size = isPlain ? (statOf(path)?.size ?? 0) : 0
  for (let window = firstWindow; ; window *= 8) {
    const from = Math.max(0, size - window)
    const found = await readFrom(path, from, { lines, filter, closed })
    if (from === 0 || found.latest.length >= lines) return found
  }
}

/** Starts at any byte offset; skips an incomplete first line. */
async function readFrom(
  path: string,
  offset: number,
  { lines, filter, closed }: { lines: number; filter: EventFilter; closed: AbortSignal },
): Promise<Latest> {
  const latest: NamedEvent[] = []
  const batches = readBatches(path, {
    skipSpans: true,
    onlyWholeLines: true,
    signal: closed,
    ...(offset === 0 ? {} : { from: { line: 1, offset } }),
  })
  const { summary, hasEnded, sessionId } = await eachEvent(batches, (event) => {
    const name = filter.names.nameOf(event)
    if (!filter.matches(event)) return
    latest.push({ event, name })
    if (latest.length > lines * 2) latest.splice(0, latest.length - lines)
  })
  if (offset === 0 && isForeign(path, summary)) throw foreignFile(path)
  return { latest: latestOf(latest, lines), last: { end: summary.end, hasEnded, sessionId } }
}

async function eachEvent(
  batches: ReturnType<typeof readBatches>,
  take: (event: EventLine) => void,
): Promise<Omit<ReadSoFar, 'end'> & { readonly summary: ReadSummary }> {
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

/** The number of compared bytes, enough for the unique id in the first line. */
const headBytes = 512

/** Detects when the file was replaced or its beginning was rewritten. */
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
  sizeOfSame(min: number): number | null {
    const stat = statOf(this.#path)
    if (stat === null || stat.ino !== this.#ino || stat.size < min) return null
    const head = this.#readHead()
    if (!head.subarray(0, this.#head.length).equals(this.#head)) return null
    this.#head = head
    return stat.size
  }

  /** Returns no bytes if the file cannot be read, for example because it was removed. */
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
  readonly last: ReadSoFar
  readonly filter: EventFilter
  readonly output: Output
  readonly signal: AbortSignal
}

async function follow(file: string, parts: FollowParts): Promise<void> {
  const { identity, last, filter, output, signal } = parts
  const writers = new RecordWriters()
  let now = last
  while (!signal.aborted) {
    // Checked before reading, so that everything the process wrote before it exited is shown.
    const { sessionId } = now
    const isWritten = sessionId === null || (await writers.isWriting(dirname(file), sessionId))
    const size = identity.sizeOfSame(now.end.offset)
    if (size === null) return output.problem(`${file} was removed or replaced`)
    if (size > now.end.offset) now = await showNew(file, now, filter, output)
    if (now.hasEnded) return
    if (!isWritten) return output.problem(lostSession)
    await sleep(systemClock, pollMs, { signal }).catch(() => undefined)
  }
}

async function showNew(
  path: string,
  { end: from, sessionId }: ReadSoFar,
  filter: EventFilter,
  output: Output,
): Promise<ReadSoFar> {
  const batches = readBatches(path, { skipSpans: true, onlyWholeLines: true, from })
  const found = await eachEvent(batches, (event) => {
    const name = filter.names.nameOf(event)
    if (filter.matches(event)) show({ event, name }, output)
  })
  const { hasEnded, summary } = found
  return { end: summary.end, hasEnded, sessionId: found.sessionId ?? sessionId }
}

function show({ event, name }: NamedEvent, output: Output): void {
  if (!output.closed.aborted)
    output.result(event, [cutText(toText(event, name, output.width), output.width)])
}

/** On narrower terminals, first the date and then the time is left out. */
const widthOf = { date: 60, time: 40 }

/** Leaves out fields that another column shows. */
function toText(event: EventLine, name: string, width: number): string {
  const { event_type, event_time, task_id, node_id, attributes } = event
  const where = attributes['worker_id'] ?? event['worker_id'] ?? node_id
  const today = width < widthOf.date ? event_time : undefined
  const time = width < widthOf.time ? null : timeText(event_time, today)
  const parts = [time, event_type, task_id, name, where, ...detailsOf(event)]
  return parts.filter((part) => typeof part === 'string' && part !== '').join('  ')
}

function detailsOf(event: EventLine): string[] {
  const { attributes } = event
  const details: string[] = []
  const seconds = event['duration_seconds']
  if (typeof seconds === 'number') details.push(secondsText(seconds))
  for (const key of ['error_type', 'reason', 'error_message'] as const) {
    const value = attributes[key] ?? event[key]
    if (typeof value === 'string' && value !== '') details.push(value.split('\n', 1)[0] ?? '')
  }
  for (const key of ['cpu_percent', 'memory_percent', 'gpu_percent'] as const) {
    const value = event[key]
    if (typeof value === 'number') details.push(`${key.split('_')[0]} ${Math.round(value)} %`)
  }
  return [...details, ...ownFields(event)]
}

/** Fields that every event has, or that are shown in another form. */
const shownFields = new Set(
  (
    'section event_type event_id event_time emit_time session_id backend task_id node_id ' +
    'attributes trace_id span_id name worker_id duration_seconds error_type reason error_message'
  ).split(' '),
)
/** Fields of the library's events that contain a time. */
const timeFields = new Set(['start_time', 'retry_at'])

/** The fields of an event type outside the specification, as `key=value`. */
function ownFields(event: EventLine): string[] {
  const { event_type, event_time, fraction, text } = event
  if (event_type === 'tutti.TaskProgress' && typeof fraction === 'number') {
    return [progressText(fraction, typeof text === 'string' ? text : '', maxValueLength)]
  }
  if (!event_type.includes('.')) return []
  const isOurs = event_type.startsWith('tutti.')
  return Object.entries(event).flatMap(([key, value]) => {
    if (shownFields.has(key) || value === null) return []
    const isTime = isOurs && timeFields.has(key) && typeof value === 'number'
    return [`${key}=${isTime ? timeText(value, event_time) : valueText(value)}`]
  })
}

const maxValueLength = 200

/** Formats a value as JSON, except text that is a single word. */
function valueText(value: unknown): string {
  const isWord = typeof value === 'string' && /^[^\s"]+$/.test(value)
  return firstLine(isWord ? value : JSON.stringify(value), maxValueLength)
}
