/** A simulated nats-server: subscriptions, and streams that survive its restarts. */

import {
  NoRoomError,
  type StoredMessage,
  StoreFullError,
  type StoreUsage,
  type StreamPosition,
  type StreamSettings,
} from '../../src/cluster/broker/broker.ts'
import type { SimulatedConnection } from './simulated-connection.ts'

interface SequencedMessage extends StoredMessage {
  readonly sequence: number
}

interface Stream {
  readonly name: string
  readonly created: string
  readonly label: string
  readonly maxAgeSeconds: number
  subjects: readonly string[]
  messages: SequencedMessage[]
  last: number
}

/** What a restarted server still has: everything, nothing, or what it had at the last backup. */
export type RestartKind = 'kept' | 'lost' | 'set back'

const messageOverheadBytes = 30
const sizeOf = ({ subject, data }: StoredMessage): number =>
  messageOverheadBytes + subject.length + data.length

export function matchesSubject(pattern: string, subject: string): boolean {
  if (pattern.endsWith('.>')) return subject.startsWith(pattern.slice(0, -1))
  if (!pattern.endsWith('.*')) return pattern === subject
  const prefix = pattern.slice(0, -1)
  return subject.startsWith(prefix) && !subject.includes('.', prefix.length)
}

export class SimulatedNats {
  readonly connections = new Set<SimulatedConnection>()
  capacityBytes = Infinity
  #streams = new Map<string, Stream>()
  #backup = new Map<string, Stream>()
  #created = 0
  isUp = true

  get streamNames(): readonly string[] {
    return [...this.#streams.keys()]
  }

  kill(): void {
    this.isUp = false
    for (const connection of this.connections) connection.break()
  }

  restart(kind: RestartKind): void {
    if (kind !== 'kept') this.#streams = kind === 'lost' ? new Map() : copyStreams(this.#backup)
    this.isUp = true
  }

  backUp(): void {
    this.#backup = copyStreams(this.#streams)
  }

  get heldBytes(): number {
    let sum = 0
    for (const { messages } of this.#streams.values()) {
      for (const message of messages) sum += sizeOf(message)
    }
    return sum
  }

  /** Delivers a message. `false` if nobody subscribes to its subject. */
  publish(subject: string, data: Uint8Array, respond: (answer: Uint8Array) => void): boolean {
    let isReceived = false
    for (const connection of this.connections) {
      if (connection.deliver({ subject, data, respond })) isReceived = true
    }
    const stream = this.#findBySubject(subject)
    if (stream !== null && this.#hasRoom({ subject, data })) add(stream, subject, data)
    return isReceived || stream !== null
  }

  append(subject: string, data: Uint8Array): void {
    const stream = this.#findBySubject(subject)
    if (stream === null) throw new Error('no stream takes the message')
    if (!this.#hasRoom({ subject, data })) throw new NoRoomError('the store is full')
    add(stream, subject, data)
  }

  appendAfter(subject: string, data: Uint8Array, sequence: number): boolean {
    const stream = this.#findBySubject(subject)
    if (stream === null) throw new Error('no stream takes the message')
    if (lastOf(stream, subject) !== sequence) return false
    this.#expectRoom({ subject, data })
    add(stream, subject, data)
    return true
  }

  openStream(name: string, settings: StreamSettings) {
    const known = this.#streams.get(name)
    if (known !== undefined) {
      known.subjects = [...new Set([...known.subjects, ...settings.subjects])]
      return { isCreated: false, label: known.label, created: known.created }
    }
    const created = `${++this.#created}`
    this.#streams.set(name, { ...settings, name, created, messages: [], last: 0 })
    return { isCreated: true, label: settings.label, created }
  }

  findStream(name: string) {
    const stream = this.#streams.get(name)
    if (stream === undefined) return null
    const { created, label } = stream
    return { created, label }
  }

  listStreams(prefix: string) {
    const all = [...this.#streams.values()].filter(({ name }) => name.startsWith(prefix))
    return all.map(({ name, messages, maxAgeSeconds }) => {
      return { name, messages: messages.length, usedAt: Infinity, maxAgeSeconds }
    })
  }

  lastSequence(name: string, subject: string): number {
    const stream = this.#streams.get(name)
    return stream === undefined ? 0 : lastOf(stream, subject)
  }

  read(name: string, subject: string, after: StreamPosition | null) {
    const stream = this.#streams.get(name)
    if (stream === undefined) throw new Error('stream not found')
    const { created, last } = stream
    const from = after?.created === created ? after.sequence : 0
    const messages = messagesOf(stream, subject).filter(({ sequence }) => sequence > from)
    return { messages, position: { created, sequence: Math.max(from, last) } }
  }

  removeFirst(
    name: string,
    subject: string,
    from: number,
    mayRemove: (data: Uint8Array) => boolean,
  ) {
    const stream = this.#streams.get(name)
    if (stream === undefined) throw new Error('stream not found')
    const examined = messagesOf(stream, subject).filter(({ sequence }) => sequence >= from)
    const removed = new Set(examined.filter(({ data }) => mayRemove(data)))
    stream.messages = stream.messages.filter((message) => !removed.has(message))
    return { removed: removed.size, next: 1 }
  }

  remove(name: string): void {
    this.#streams.delete(name)
  }

  usage(): StoreUsage {
    const limitBytes = this.capacityBytes === Infinity ? null : this.capacityBytes
    return { heldBytes: this.heldBytes, limitBytes }
  }

  putObject(subject: string, data: Uint8Array): void {
    const stream = this.#findBySubject(`${subject}.0`)
    if (stream === null) throw new Error('no stream takes the object')
    this.#expectRoom({ subject, data })
    add(stream, `${subject}.0`, data)
  }

  getObject(name: string, subject: string) {
    const stream = this.#streams.get(name)
    const found = stream === undefined ? undefined : messagesOf(stream, `${subject}.0`).at(-1)
    return found === undefined ? null : { data: found.data, chunks: [found.sequence] }
  }

  deleteObject(name: string, subject: string): void {
    const stream = this.#streams.get(name)
    if (stream === undefined) return
    stream.messages = stream.messages.filter((message) => message.subject !== `${subject}.0`)
  }

  #expectRoom(message: StoredMessage): void {
    if (this.#hasRoom(message)) return
    const object = { storedBytes: 0, neededBytes: sizeOf(message) }
    // The limit is temporary, so that it does not count as the limit of the account.
    const usage = { heldBytes: this.heldBytes, limitBytes: null }
    throw new StoreFullError(usage, object, new Error('the store is full'))
  }

  #hasRoom(message: StoredMessage): boolean {
    return this.capacityBytes === Infinity || this.heldBytes + sizeOf(message) <= this.capacityBytes
  }

  #findBySubject(subject: string): Stream | null {
    for (const stream of this.#streams.values()) {
      if (stream.subjects.some((pattern) => matchesSubject(pattern, subject))) return stream
    }
    return null
  }
}

function add(stream: Stream, subject: string, data: Uint8Array): void {
  stream.messages.push({ subject, data, sequence: ++stream.last })
}

const messagesOf = ({ messages }: Stream, pattern: string): SequencedMessage[] =>
  messages.filter(({ subject }) => matchesSubject(pattern, subject))

const lastOf = ({ messages }: Stream, wanted: string): number =>
  messages.findLast(({ subject }) => subject === wanted)?.sequence ?? 0

const copyStreams = (streams: ReadonlyMap<string, Stream>): Map<string, Stream> =>
  new Map(
    Array.from(streams, ([name, stream]) => [name, { ...stream, messages: [...stream.messages] }]),
  )
