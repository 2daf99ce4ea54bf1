/** Converts a run to a Perfetto trace: nodes are processes, workers threads, attempts slices. */

import type { CheckpointLine, EventLine } from '../../checkpoint/format.ts'
import { TaskNames } from '../../views/panel.ts'

/** Field numbers from `perfetto_trace.proto`. */
const packet = { timestamp: 8, sequence: 10, trackEvent: 11, trackDescriptor: 60 } as const
const track = { uuid: 1, process: 3, thread: 4, parent: 5, counter: 8, name: 2 } as const
const trackEvent = { type: 9, track: 11, name: 23, category: 22, annotation: 4, value: 44 } as const
const types = { begin: 1, end: 2, counter: 4 } as const

/** Keeps only unfinished tasks in memory. */
export async function* perfettoTrace(
  batches: AsyncIterable<readonly CheckpointLine[]>,
): AsyncGenerator<Uint8Array> {
  const trace = new TraceWriter()
  for await (const batch of batches) {
    for (const line of batch) if (line.section === 'event') trace.take(line)
    const bytes = trace.takeBytes()
    if (bytes.length > 0) yield bytes
  }
  trace.endLost()
  const bytes = trace.takeBytes()
  if (bytes.length > 0) yield bytes
}

interface Attempt {
  readonly row: WorkerRow
  readonly number: unknown
  readonly start: number
}

/** An attempt that was running when its session was killed; an agent may have continued it. */
interface LostAttempt extends Attempt {
  readonly lastTime: number
}

/** One row of a worker; overlapping attempts of a worker are in separate rows. */
interface WorkerRow {
  readonly track: bigint
  isBusy: boolean
}

class TraceWriter {
  #parts: Uint8Array[] = []
  #tracks = 0n
  readonly #nodes = new Map<
    string,
    { readonly track: bigint; readonly pid: bigint; tids: bigint }
  >()
  readonly #rows = new Map<string, WorkerRow[]>()
  readonly #counters = new Map<string, bigint>()
  /** The running attempt by task uid. */
  readonly #running = new Map<string, Attempt>()
  readonly #lost = new Map<string, LostAttempt>()
  readonly #names = new TaskNames()
  #lastTime = 0

  take(event: EventLine): void {
    const { event_type: type, task_id: uid } = event
    if (type === 'SessionStarted') this.#loseRunning()
    this.#lastTime = Math.max(this.#lastTime, event.event_time)
    if (type === 'ResourceUpdate') this.#count(event)
    if (uid === null) return
    const name = this.#names.nameOf(event)
    if (type === 'TaskStarted' || type === 'tutti.AttemptStarted') this.#begin(uid, name, event)
    else if (ends.has(type)) this.#end(uid, event)
  }

  takeBytes(): Uint8Array {
    const bytes = Buffer.concat(this.#parts)
    this.#parts = []
    return bytes
  }

  /** Ends the slices of lost attempts that no session continued: all, or only those of one row. */
  endLost(of?: WorkerRow): void {
    for (const [uid, { row, lastTime }] of this.#lost) {
      if (of !== undefined && row !== of) continue
      this.#lost.delete(uid)
      this.#endSlice(row, lastTime, [annotation('end', 'lost')])
    }
  }

  /** Call at the start of a session: attempts of the previous session may still be continued. */
  #loseRunning(): void {
    this.endLost()
    for (const [uid, attempt] of this.#running) {
      attempt.row.isBusy = false
      this.#lost.set(uid, { ...attempt, lastTime: this.#lastTime })
    }
    this.#running.clear()
  }

  #begin(uid: string, name: string, event: EventLine): void {
    if (this.#running.has(uid)) return
    const { attributes } = event
    const number = attributes['attempt'] ?? event['attempt']
    const lost = this.#lost.get(uid)
    this.#lost.delete(uid)
    if (lost !== undefined && lost.number === number) {
      lost.row.isBusy = true
      this.#running.set(uid, lost)
      return
    }
    if (lost !== undefined) this.#endSlice(lost.row, lost.lastTime, [annotation('end', 'lost')])
    const worker = attributes['worker_id'] ?? event['worker_id']
    const row = this.#freeRow(event.node_id ?? event.backend, String(worker ?? event.backend))
    // A worker that starts another attempt has not continued its lost attempt.
    this.endLost(row)
    row.isBusy = true
    this.#running.set(uid, { row, number, start: event.event_time })
    this.#event(event.event_time, [
      varintField(trackEvent.type, types.begin),
      varintField(trackEvent.track, row.track),
      textField(trackEvent.category, 'task'),
      textField(trackEvent.name, name || uid),
      annotation('task', uid),
    ])
  }

  #end(uid: string, event: EventLine): void {
    const attempt = this.#running.get(uid) ?? this.#lost.get(uid)
    if (attempt === undefined) return
    this.#running.delete(uid)
    this.#lost.delete(uid)
    attempt.row.isBusy = false
    const error = event.attributes['error_type'] ?? event['error_type']
    this.#endSlice(attempt.row, endOf(attempt, event), [
      annotation('end', event.event_type),
      ...(typeof error === 'string' ? [annotation('error', error)] : []),
    ])
  }

  #endSlice(row: WorkerRow, seconds: number, annotations: readonly Uint8Array[]): void {
    this.#event(seconds, [
      varintField(trackEvent.type, types.end),
      varintField(trackEvent.track, row.track),
      ...annotations,
    ])
  }

  /** Writes the measurements of a node as counters. */
  #count(event: EventLine): void {
    if (event['resource_scope'] !== 'per_node') return
    for (const kind of ['cpu_percent', 'memory_percent', 'gpu_percent']) {
      const value = event[kind]
      if (typeof value !== 'number') continue
      const node = event.node_id ?? event.backend
      const key = `${node} ${kind}`
      let uuid = this.#counters.get(key)
      if (uuid === undefined) {
        uuid = this.#newTrack([
          varintField(track.parent, this.#nodeOf(node).track),
          textField(track.name, kind),
          bytesField(track.counter, message([])),
        ])
        this.#counters.set(key, uuid)
      }
      this.#event(event.event_time, [
        varintField(trackEvent.type, types.counter),
        varintField(trackEvent.track, uuid),
        doubleField(trackEvent.value, value),
      ])
    }
  }

  #freeRow(node: string, worker: string): WorkerRow {
    const key = JSON.stringify([node, worker])
    const rows = this.#rows.get(key) ?? []
    this.#rows.set(key, rows)
    const free = rows.find(({ isBusy }) => !isBusy)
    if (free !== undefined) return free
    const owner = this.#nodeOf(node)
    owner.tids++
    const name = rows.length === 0 ? worker : `${worker} (${rows.length + 1})`
    const thread = message([
      varintField(1, owner.pid),
      varintField(2, owner.pid * 100_000n + owner.tids),
      textField(5, name),
    ])
    const row = { track: this.#newTrack([bytesField(track.thread, thread)]), isBusy: false }
    rows.push(row)
    return row
  }

  #nodeOf(node: string) {
    const known = this.#nodes.get(node)
    if (known !== undefined) return known
    const pid = BigInt(this.#nodes.size + 1)
    const process = message([varintField(1, pid), textField(6, node)])
    const made = { track: this.#newTrack([bytesField(track.process, process)]), pid, tids: 0n }
    this.#nodes.set(node, made)
    return made
  }

  #newTrack(fields: readonly Uint8Array[]): bigint {
    const uuid = ++this.#tracks
    const descriptor = message([varintField(track.uuid, uuid), ...fields])
    this.#packet([bytesField(packet.trackDescriptor, descriptor)])
    return uuid
  }

  #event(seconds: number, fields: readonly Uint8Array[]): void {
    const nanoseconds = BigInt(Math.max(0, Math.round(seconds * 1e6))) * 1000n
    this.#packet([
      varintField(packet.timestamp, nanoseconds),
      bytesField(packet.trackEvent, message(fields)),
    ])
  }

  /** A trace is a repeated field of packets with the field number 1. */
  #packet(fields: readonly Uint8Array[]): void {
    this.#parts.push(bytesField(1, message([...fields, varintField(packet.sequence, 1)])))
  }
}

/** A lost attempt is reported late, so the time when it ended is computed from its duration. */
function endOf(attempt: Attempt, event: EventLine): number {
  const ran = event['duration_seconds']
  const wasLost = 'lastTime' in attempt
  return wasLost && typeof ran === 'number' && ran > 0 ? attempt.start + ran : event.event_time
}

const ends = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled', 'tutti.TaskAttempt'])

const annotation = (name: string, value: string): Uint8Array =>
  bytesField(trackEvent.annotation, message([textField(10, name), textField(6, value)]))

/** The protobuf wire types that a trace needs. */
const wire = { varint: 0, fixed64: 1, bytes: 2 } as const

function varint(value: bigint): number[] {
  const bytes: number[] = []
  let rest = value
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128)
    rest >>= 7n
  }
  bytes.push(Number(rest))
  return bytes
}

const tag = (field: number, kind: number): number[] => varint(BigInt(field * 8 + kind))

/** Unsigned values only. */
const varintField = (field: number, value: number | bigint): Uint8Array =>
  Uint8Array.from([...tag(field, wire.varint), ...varint(BigInt(value))])

function doubleField(field: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return Buffer.concat([Uint8Array.from(tag(field, wire.fixed64)), bytes])
}

/** Also used for nested messages. */
const bytesField = (field: number, bytes: Uint8Array): Uint8Array =>
  Buffer.concat([
    Uint8Array.from([...tag(field, wire.bytes), ...varint(BigInt(bytes.length))]),
    bytes,
  ])

const textField = (field: number, text: string): Uint8Array => bytesField(field, Buffer.from(text))

const message = (fields: readonly Uint8Array[]): Uint8Array => Buffer.concat(fields)
