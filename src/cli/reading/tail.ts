/** `tutti tail`: the latest events of a record, and those that follow. */

import { shortName, timeText } from '../../views/readable.ts'
import { statSync } from 'node:fs'
import { isPipe } from '../../checkpoint/chain.ts'
import { isCompressed } from '../../checkpoint/compressed.ts'
import type { EventLine } from '../../checkpoint/format.ts'
import { type LinePosition, readBatches, type ReadSummary } from '../../checkpoint/reader.ts'
import { sleep, systemClock } from '../../foundation/clock.ts'
import { findRecord } from '../../record/find-record.ts'
import { exitCodes, firstSignal, signalExitCodes, type StopSignal } from '../exit.ts'
import type { Output } from '../output.ts'
import { fit } from './text.ts'

export interface TailOptions {
  /** How many of the latest matching events. */
  readonly lines: number
  readonly follow?: boolean
  readonly type?: readonly string[]
  readonly task?: string
  readonly name?: string
  readonly node?: string
  readonly backend?: string
}

const pollMs = 200
/** Where the search for the latest events begins, before the end of the file. */
const firstWindow = 2 ** 20

/** Ends with the session, a signal, or a closed output. One JSON value a line under `--json`. */
export async function tail(what: string, options: TailOptions, output: Output): Promise<number> {
  const path = await findRecord(what)
  const signal = options.follow === true ? firstSignal(output.closed) : null
  const stop = new AbortController()
  const stopped = signal?.received.then((name) => {
    stop.abort()
    return name
  })
  try {
    const { latest, end, hasEnded } = await readLatest(path, options, output.closed)
    for (const event of latest) show(event, output)
    if (options.follow !== true || hasEnded || isPipe(path) || isCompressed(path)) {
      return exitCodes.ok
    }
    await follow(path, { end, options, output, signal: stop.signal })
    return stop.signal.aborted ? codeOf((await stopped) ?? null) : exitCodes.ok
  } finally {
    signal?.release()
  }
}

const codeOf = (signal: StopSignal | null): number =>
  signal === null ? exitCodes.ok : signalExitCodes[signal]

interface Latest {
  readonly latest: readonly EventLine[]
  readonly end: LinePosition
  readonly hasEnded: boolean
}

/** Reads as little as possible from the end of the file. */
async function readLatest(
  path: string,
  options: TailOptions,
  closed: AbortSignal,
): Promise<Latest> {
  const isPlain = !isPipe(path) && !isCompressed(path)
  const size = isPlain ? (statSync(path, { throwIfNoEntry: false })?.size ?? 0) : 0
  for (let window = firstWindow; ; window *= 8) {
    const from = Math.max(0, size - window)
    const found = await readFrom(path, from, options, closed)
    if (from === 0 || found.latest.length >= options.lines) return found
  }
}

/** From a byte within a line: that line is left out. */
async function readFrom(
  path: string,
  offset: number,
  options: TailOptions,
  closed: AbortSignal,
): Promise<Latest> {
  const latest: EventLine[] = []
  let hasEnded = false
  const batches = readBatches(path, {
    skipSpans: true,
    onlyWholeLines: true,
    signal: closed,
    ...(offset === 0 ? {} : { from: { line: 1, offset } }),
  })
  const { end } = await eachEvent(batches, (event) => {
    hasEnded = event.event_type === 'SessionEnded' || hasEnded
    if (!matches(event, options)) return
    latest.push(event)
    if (latest.length > options.lines * 2) latest.splice(0, latest.length - options.lines)
  })
  return { latest: options.lines === 0 ? [] : latest.slice(-options.lines), end, hasEnded }
}

async function eachEvent(
  batches: ReturnType<typeof readBatches>,
  take: (event: EventLine) => void,
): Promise<ReadSummary> {
  for (;;) {
    const batch = await batches.next()
    if (batch.done === true) return batch.value
    for (const line of batch.value) if (line.section === 'event') take(line)
  }
}

interface FollowParts {
  readonly end: LinePosition
  readonly options: TailOptions
  readonly output: Output
  readonly signal: AbortSignal
}

async function follow(path: string, { end, options, output, signal }: FollowParts): Promise<void> {
  for (let from: LinePosition | null = end; from !== null && !signal.aborted;) {
    from = await showNew(path, from, options, output)
    if (from !== null) await sleep(systemClock, pollMs, { signal }).catch(() => undefined)
  }
}

/** Resolves with the new end; `null` when there is nothing more to come. */
async function showNew(
  path: string,
  from: LinePosition,
  options: TailOptions,
  output: Output,
): Promise<LinePosition | null> {
  const size = statSync(path, { throwIfNoEntry: false })?.size ?? 0
  // A file that was removed or cut has nothing more to tell.
  if (size <= from.offset) return size < from.offset ? null : from
  let hasEnded = false
  const batches = readBatches(path, { skipSpans: true, onlyWholeLines: true, from })
  const { end } = await eachEvent(batches, (event) => {
    hasEnded = event.event_type === 'SessionEnded' || hasEnded
    if (matches(event, options)) show(event, output)
  })
  return hasEnded ? null : end
}

function matches(event: EventLine, { type, task, name, node, backend }: TailOptions): boolean {
  if (type !== undefined && !type.includes(event.event_type)) return false
  if (task !== undefined && event.task_id !== task) return false
  if (node !== undefined && event.node_id !== node) return false
  if (backend !== undefined && event.backend !== backend) return false
  if (name === undefined) return true
  const executable = event.attributes['executable']
  return executable === name || (typeof executable === 'string' && shortName(executable) === name)
}

function show(event: EventLine, output: Output): void {
  if (!output.closed.aborted) output.result(event, [fit(toText(event), output.width)])
}

/** Of the fields, those that no other column shows. */
function toText(event: EventLine): string {
  const { event_type, event_time, task_id, node_id, attributes } = event
  const name = attributes['executable']
  const where = attributes['worker_id'] ?? event['worker_id'] ?? node_id
  const parts = [timeText(event_time), event_type, task_id, name, where, ...detailsOf(event)]
  return parts.filter((part) => typeof part === 'string' && part !== '').join('  ')
}

function detailsOf(event: EventLine): string[] {
  const { attributes } = event
  const details: string[] = []
  const seconds = event['duration_seconds']
  if (typeof seconds === 'number') details.push(`${seconds.toFixed(3)} s`)
  for (const key of ['error_type', 'reason', 'error_message'] as const) {
    const value = attributes[key] ?? event[key]
    if (typeof value === 'string' && value !== '') details.push(value.split('\n', 1)[0] ?? '')
  }
  for (const key of ['cpu_percent', 'memory_percent', 'gpu_percent'] as const) {
    const value = event[key]
    if (typeof value === 'number') details.push(`${key.split('_')[0]} ${Math.round(value)} %`)
  }
  return details
}
