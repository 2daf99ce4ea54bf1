/** Converts a run to a Perfetto trace. Nodes become processes, and workers become threads. */

import type { CheckpointLine, EventLine } from '../../checkpoint/format.ts'
import { terminalEvents } from '../../events/vocabulary.ts'
import { TaskNames } from '../../views/panel.ts'

/** The field numbers of `perfetto_trace.proto`. */
const packetFields = { timestamp: 8, sequence: 10, trackEvent: 11, trackDescriptor: 60 } as const
const trackFields = { uuid: 1, process: 3, thread: 4, parent: 5, counter: 8, name: 2 } as const
const trackEventFields = {
  type: 9,
  track: 11,
  name: 23,
  category: 22,
  annotation: 4,
  value: 44,
} as const
const eventTypes = { begin: 1, end: 2, counter: 4 } as const

/** Yields the bytes of the trace. Keeps only unfinished tasks in memory. */
export async function* perfettoTrace(
  batches: AsyncIterable<readonly CheckpointLine[]>,
): AsyncGenerator<Uint8Array> {
  const trace = new TraceWriter()
  for await (const batch of batches) {
    for (const line of batch) if (line.section === 'event') trace.addEvent(line)
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

/** An attempt that was running when its session was killed. An agent may have continued it. */
interface LostAttempt extends Attempt {
  readonly lastTime: number
}

/** A row of a worker. Attempts that overlap are in separate rows. */
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
  readonly #running = new Map<string, Attempt>()
  readonly #lostAttempts = new Map<string, LostAttempt>()
  readonly #names = new TaskNames()
  #lastTime = 0

  addEvent(event: EventLine): void {
    const { event_type: type, task_id: uid } = event
    if (type === 'SessionStarted') this.#markRunningLost()
    this.#lastTime = Math.max(this.#lastTime, event.event_time)
    if (type === 'ResourceUpdate') this.#addCounters(event)
    if (uid === null) return
    const name = this.#names.nameOf(event)
    if (type === 'TaskStarted' || type === 'tutti.AttemptStarted')
      this.#beginAttempt(uid, name, event)
    else if (terminalEvents.has(type) || type === 'tutti.TaskAttempt') this.#endAttempt(uid, event)
  }

  takeBytes(): Uint8Array {
    const bytes = Buffer.concat(this.#parts)
    this.#parts = []
    return bytes
  }

  endLost(of?: WorkerRow): void {
    for (const [uid, { row, lastTime }] of this.#lostAttempts) {
      if (of !== undefined && row !== of) continue
      this.#lostAttempts.delete(uid)
      this.#endSlice(row, lastTime, [createAnnotation('end', 'lost')])
    }
  }

  /** Marks the running attempts as lost. Called when a session starts, which may continue them. */
  #markRunningLost(): void {
    this.endLost()
    for (const [uid, attempt] of this.#running) {
      attempt.row.isBusy = false
      this.#lostAttempts.set(uid, { ...attempt, lastTime: this.#lastTime })
    }
    this.#running.clear()
  }

  #beginAttempt(uid: string, name: string, event: EventLine): void {
    if (this.#running.has(uid)) return
    const { attributes } = event
    const number = attributes['attempt'] ?? event['attempt']
    const lost = this.#lostAttempts.get(uid)
    this.#lostAttempts.delete(uid)
    if (lost !== undefined && lost.number === number) {
      lost.row.isBusy = true
      this.#running.set(uid, lost)
      return
    }
    if (lost !== undefined)
      this.#endSlice(lost.row, lost.lastTime, [createAnnotation('end', 'lost')])
    const worker = attributes['worker_id'] ?? event['worker_id']
    const row = this.#findFreeRow(event.node_id ?? event.backend, String(worker ?? event.backend))
    // A worker that starts another attempt does not continue its lost attempt.
    this.endLost(row)
    row.isBusy = true
    this.#running.set(uid, { row, number, start: event.event_time })
    this.#writeEvent(event.event_time, [
      varintField(trackEventFields.type, eventTypes.begin),
      varintField(trackEventFields.track, row.track),
      textField(trackEventFields.category, 'task'),
      textField(trackEventFields.name, name || uid),
      createAnnotation('task', uid),
    ])
  }

  #endAttempt(uid: string, event: EventLine): void {
    const attempt = this.#running.get(uid) ?? this.#lostAttempts.get(uid)
    if (attempt === undefined) return
    this.#running.delete(uid)
    this.#lostAttempts.delete(uid)
    attempt.row.isBusy = false
    const error = event.attributes['error_type'] ?? event['error_type']
    this.#endSlice(attempt.row, endTimeOf(attempt, event), [
      createAnnotation('end', event.event_type),
      ...(typeof error === 'string' ? [createAnnotation('error', error)] : []),
    ])
  }

  #endSlice(row: WorkerRow, seconds: number, annotations: readonly Uint8Array[]): void {
    this.#writeEvent(seconds, [
      varintField(trackEventFields.type, eventTypes.end),
      varintField(trackEventFields.track, row.track),
      ...annotations,
    ])
  }

  #addCounters(event: EventLine): void {
    if (event['resource_scope'] !== 'per_node') return
    for (const kind of ['cpu_percent', 'memory_percent', 'gpu_percent']) {
      const value = event[kind]
      if (typeof value !== 'number') continue
      const node = event.node_id ?? event.backend
      const key = `${node} ${kind}`
      let uuid = this.#counters.get(key)
      if (uuid === undefined) {
        uuid = this.#createTrack([
          varintField(trackFields.parent, this.#getNode(node).track),
          textField(trackFields.name, kind),
          bytesField(trackFields.counter, joinFields([])),
        ])
        this.#counters.set(key, uuid)
      }
      this.#writeEvent(event.event_time, [
        varintField(trackEventFields.type, eventTypes.counter),
        varintField(trackEventFields.track, uuid),
        doubleField(trackEventFields.value, value),
      ])
    }
  }

  #findFreeRow(node: string, worker: string): WorkerRow {
    const key = JSON.stringify([node, worker])
    const rows = this.#rows.get(key) ?? []
    this.#rows.set(key, rows)
    const free = rows.find(({ isBusy }) => !isBusy)
    if (free !== undefined) return free
    const owner = this.#getNode(node)
    owner.tids++
    const name = rows.length === 0 ? worker : `${worker} (${rows.length + 1})`
    const thread = joinFields([
      varintField(1, owner.pid),
      varintField(2, owner.pid * 100_000n + owner.tids),
      textField(5, name),
    ])
    const row = {
      track: this.#createTrack([bytesField(trackFields.thread, thread)]),
      isBusy: false,
    }
    rows.push(row)
    return row
  }

  #getNode(node: string) {
    const known = this.#nodes.get(node)
    if (known !== undefined) return known
    const pid = BigInt(this.#nodes.size + 1)
    const process = joinFields([varintField(1, pid), textField(6, node)])
    const added = {
      track: this.#createTrack([bytesField(trackFields.process, process)]),
      pid,
      tids: 0n,
    }
    this.#nodes.set(node, added)
    return added
  }

  #createTrack(fields: readonly Uint8Array[]): bigint {
    const uuid = ++this.#tracks
    const descriptor = joinFields([varintField(trackFields.uuid, uuid), ...fields])
    this.#writePacket([bytesField(packetFields.trackDescriptor, descriptor)])
    return uuid
  }

  #writeEvent(seconds: number, fields: readonly Uint8Array[]): void {
    const nanoseconds = BigInt(Math.max(0, Math.round(seconds * 1e6))) * 1000n
    this.#writePacket([
      varintField(packetFields.timestamp, nanoseconds),
      bytesField(packetFields.trackEvent, joinFields(fields)),
    ])
  }

  /** Writes one packet. A trace is a message whose field 1 is the list of packets. */
  #writePacket(fields: readonly Uint8Array[]): void {
    this.#parts.push(bytesField(1, joinFields([...fields, varintField(packetFields.sequence, 1)])))
  }
}

/**
 * Returns the time at which an attempt ended. The event of a lost attempt is written late, so its
 * end is calculated from its duration.
 */
function endTimeOf(attempt: Attempt, event: EventLine): number {
  const ranSeconds = event['duration_seconds']
  const wasLost = 'lastTime' in attempt
  return wasLost && typeof ranSeconds === 'number' && ranSeconds > 0
    ? attempt.start + ranSeconds
    : event.event_time
}

const createAnnotation = (name: string, value: string): Uint8Array =>
  bytesField(trackEventFields.annotation, joinFields([textField(10, name), textField(6, value)]))

const wireTypes = { varint: 0, fixed64: 1, bytes: 2 } as const

function encodeVarint(value: bigint): number[] {
  const bytes: number[] = []
  let rest = value
  while (rest >= 128n) {
    bytes.push(Number(rest & 127n) | 128)
    rest >>= 7n
  }
  bytes.push(Number(rest))
  return bytes
}

const encodeTag = (field: number, kind: number): number[] => encodeVarint(BigInt(field * 8 + kind))

/** Encodes an unsigned value. */
const varintField = (field: number, value: number | bigint): Uint8Array =>
  Uint8Array.from([...encodeTag(field, wireTypes.varint), ...encodeVarint(BigInt(value))])

function doubleField(field: number, value: number): Uint8Array {
  const bytes = Buffer.alloc(8)
  bytes.writeDoubleLE(value)
  return Buffer.concat([Uint8Array.from(encodeTag(field, wireTypes.fixed64)), bytes])
}

/** Encodes bytes or a nested message. */
const bytesField = (field: number, bytes: Uint8Array): Uint8Array =>
  Buffer.concat([
    Uint8Array.from([...encodeTag(field, wireTypes.bytes), ...encodeVarint(BigInt(bytes.length))]),
    bytes,
  ])

const textField = (field: number, text: string): Uint8Array => bytesField(field, Buffer.from(text))

const joinFields = (fields: readonly Uint8Array[]): Uint8Array => Buffer.concat(fields)
