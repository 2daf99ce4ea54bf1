/** A run as a trace of Perfetto: a process a node, a thread a worker, a slice an attempt. */

import type { CheckpointLine, EventLine } from '../../checkpoint/format.ts'
import { bytesField, doubleField, message, textField, varintField } from './protobuf.ts'

/** Numbers of `perfetto_trace.proto`. */
const packet = { timestamp: 8, sequence: 10, trackEvent: 11, trackDescriptor: 60 } as const
const track = { uuid: 1, process: 3, thread: 4, parent: 5, counter: 8, name: 2 } as const
const trackEvent = { type: 9, track: 11, name: 23, category: 22, annotation: 4, value: 44 } as const
const types = { begin: 1, end: 2, counter: 4 } as const

/** Needs memory for the attempts that run, not for those that have ended. */
export async function* perfettoTrace(
  batches: AsyncIterable<readonly CheckpointLine[]>,
): AsyncGenerator<Uint8Array> {
  const trace = new TraceWriter()
  for await (const batch of batches) {
    for (const line of batch) if (line.section === 'event') trace.take(line)
    const bytes = trace.takeBytes()
    if (bytes.length > 0) yield bytes
  }
}

interface Attempt {
  readonly row: WorkerRow
}

/** Attempts of one worker that overlap are in rows of their own. */
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
  /** By the task's uid. */
  readonly #running = new Map<string, Attempt>()

  take(event: EventLine): void {
    const { event_type: type, task_id: uid } = event
    if (type === 'ResourceUpdate') this.#count(event)
    if (uid === null) return
    if (type === 'TaskStarted' || type === 'tutti.AttemptStarted') this.#begin(uid, event)
    else if (ends.has(type)) this.#end(uid, event)
  }

  takeBytes(): Uint8Array {
    const bytes = Buffer.concat(this.#parts)
    this.#parts = []
    return bytes
  }

  #begin(uid: string, event: EventLine): void {
    if (this.#running.has(uid)) return
    const { attributes } = event
    const worker = attributes['worker_id'] ?? event['worker_id']
    const row = this.#freeRow(event.node_id ?? event.backend, String(worker ?? event.backend))
    row.isBusy = true
    this.#running.set(uid, { row })
    const name = attributes['executable']
    this.#event(event.event_time, [
      varintField(trackEvent.type, types.begin),
      varintField(trackEvent.track, row.track),
      textField(trackEvent.category, 'task'),
      textField(trackEvent.name, typeof name === 'string' ? name : uid),
      annotation('task', uid),
    ])
  }

  #end(uid: string, event: EventLine): void {
    const attempt = this.#running.get(uid)
    if (attempt === undefined) return
    this.#running.delete(uid)
    attempt.row.isBusy = false
    const error = event.attributes['error_type'] ?? event['error_type']
    this.#event(event.event_time, [
      varintField(trackEvent.type, types.end),
      varintField(trackEvent.track, attempt.row.track),
      annotation('end', event.event_type),
      ...(typeof error === 'string' ? [annotation('error', error)] : []),
    ])
  }

  /** Readings of a node as counters. */
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

  /** A trace is a list of packets; the list has the number 1. */
  #packet(fields: readonly Uint8Array[]): void {
    this.#parts.push(bytesField(1, message([...fields, varintField(packet.sequence, 1)])))
  }
}

const ends = new Set(['TaskCompleted', 'TaskFailed', 'TaskCanceled', 'tutti.TaskAttempt'])

const annotation = (name: string, value: string): Uint8Array =>
  bytesField(trackEvent.annotation, message([textField(10, name), textField(6, value)]))
