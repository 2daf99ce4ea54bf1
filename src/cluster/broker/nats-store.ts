/** Implements `BrokerStore` on NATS: streams, and objects as pieces in these streams. */

import type * as JetStream from '@nats-io/jetstream'
import type { JetStreamClient, JetStreamManager, StoredMsg, StreamInfo } from '@nats-io/jetstream'
import type * as Transport from '@nats-io/transport-node'
import type { NatsConnection } from '@nats-io/transport-node'
import { TimeoutError } from '../../foundation/errors.ts'
import { AppendAcks, fullStoreCodes } from './append-acks.ts'
import {
  type BrokerStore,
  type OpenedStream,
  type StoredMessage,
  type StoredObject,
  type StoredStream,
  StoreFullError,
  type StoreUsage,
  type StreamPosition,
  type StreamState,
  type StreamSettings,
} from './broker.ts'

/** The packages of the NATS client. */
export interface NatsLibraries {
  readonly transport: typeof Transport
  readonly jetstream: typeof JetStream
}

interface ReadMessage extends StoredMessage {
  readonly sequence: number
}

/** The number of messages per request of `read`. */
const fetchCount = 256
/** The number of messages that one call of `removeFirst` examines. */
const maxExamined = 256
/** The size of an object's pieces, unless the server's limit for messages is smaller. */
const pieceBytes = 128 * 1024
/** Bytes of the server's limit that are reserved for headers. */
const overheadBytes = 1024
/** The header of each piece that has the total number of pieces. */
const countHeader = 'Tutti-Pieces'
const maxPieces = 2 ** 20
/** How many pieces are transferred concurrently. */
const parallelPieces = 8
/** Server error code: a stream of this name exists with other settings. */
const takenNameCode = 10_058
/** Server error codes: the last message of the subject is not the expected one. */
const otherLastCodes: ReadonlySet<number> = new Set([10_071, 10_164])

/**
 * Does not use the client's own object store: each read there leaves a consumer in the server, and
 * waits forever if the server is restarted meanwhile. Pieces that are requested by their subjects
 * need no consumer, and every request has a time limit.
 */
export class NatsStore implements BrokerStore {
  readonly #connection: NatsConnection
  readonly #manager: JetStreamManager
  readonly #libraries: NatsLibraries
  readonly #client: JetStreamClient
  readonly #callMs: number
  readonly #acks: AppendAcks

  /** Each request to the server's API ends within `callMs`. */
  constructor(
    connection: NatsConnection,
    manager: JetStreamManager,
    libraries: NatsLibraries,
    callMs: number,
  ) {
    this.#connection = connection
    this.#manager = manager
    this.#libraries = libraries
    this.#client = libraries.jetstream.jetstream(connection, { timeout: callMs })
    this.#callMs = callMs
    this.#acks = new AppendAcks(connection, libraries.transport.createInbox())
  }

  async openStream(name: string, settings: StreamSettings): Promise<OpenedStream> {
    const { subjects } = settings
    const known = await this.#findStream(name)
    if (known === null) return this.#createStream(name, settings)
    const { config } = known
    const all = new Set([...config.subjects, ...subjects])
    const { description = '' } = config
    const label = description === '' ? settings.label : description
    // The stream was created by another version, or by another program.
    if (all.size > config.subjects.length || description === '') {
      await this.#manager.streams.update(name, { subjects: [...all], description: label })
    }
    return { isCreated: false, label }
  }

  async #createStream(name: string, settings: StreamSettings): Promise<OpenedStream> {
    const { subjects, label, maxAgeSeconds } = settings
    const { JetStreamApiError, StorageType } = this.#libraries.jetstream
    try {
      await this.#manager.streams.add({
        name,
        subjects: [...subjects],
        description: label,
        max_age: maxAgeSeconds * 1e9,
        storage: StorageType.File,
        allow_direct: true,
      })
      return { isCreated: true, label }
    } catch (error) {
      if (!(error instanceof JetStreamApiError && error.code === takenNameCode)) throw error
      // Another process has created the stream meanwhile.
      return this.openStream(name, settings)
    }
  }

  async hasStream(name: string): Promise<boolean> {
    return (await this.#findStream(name)) !== null
  }

  async findStream(name: string, subject: string): Promise<StreamState | null> {
    const found = await this.#findStream(name, { subjects_filter: subject })
    if (found === null) return null
    const { created, state, config } = found
    const { description: label = '' } = config
    return { created, label, messages: state.subjects?.[subject] ?? 0 }
  }

  async #findStream(
    name: string,
    wanted?: { readonly subjects_filter: string },
  ): Promise<StreamInfo | null> {
    try {
      return await this.#manager.streams.info(name, wanted)
    } catch (error) {
      if (this.#isMissing(error)) return null
      throw error
    }
  }

  async listStreams(prefix: string): Promise<StoredStream[]> {
    const streams: StoredStream[] = []
    for await (const { config, state, created } of this.#manager.streams.list()) {
      if (!config.name.startsWith(prefix)) continue
      streams.push({
        name: config.name,
        messages: state.messages,
        usedAt: Math.max(Date.parse(created), Date.parse(state.last_ts)) / 1000,
        maxAgeSeconds: config.max_age / 1e9,
      })
    }
    return streams
  }

  append(subject: string, data: Uint8Array, timeoutMs: number): Promise<void> {
    return this.#acks.append(subject, data, timeoutMs)
  }

  async lastSequence(stream: string, subject: string): Promise<number> {
    return (await this.#getLast(stream, subject))?.seq ?? 0
  }

  async appendAfter(subject: string, data: Uint8Array, sequence: number): Promise<boolean> {
    const { JetStreamApiError } = this.#libraries.jetstream
    try {
      await this.#client.publish(subject, data, { expect: { lastSubjectSequence: sequence } })
      return true
    } catch (error) {
      if (error instanceof JetStreamApiError && otherLastCodes.has(error.code)) return false
      throw await this.#toProblem(error, 0, recordBytes(subject, data.length, 0))
    }
  }

  async read(
    stream: string,
    subject: string,
    after: StreamPosition | null,
  ): Promise<{ readonly messages: StoredMessage[]; readonly position: StreamPosition }> {
    const { created, state } = await this.#manager.streams.info(stream)
    // A later stream of the same name counts from 1.
    const from = after?.created === created ? after.sequence : 0
    if (from >= state.last_seq) return { messages: [], position: { created, sequence: from } }
    const messages = await this.#readFrom(stream, subject, from + 1)
    // More messages may have arrived since.
    const sequence = Math.max(state.last_seq, messages.at(-1)?.sequence ?? 0)
    return { messages, position: { created, sequence } }
  }

  async removeFirst(
    stream: string,
    subject: string,
    from: number,
    mayRemove: (data: Uint8Array) => boolean,
  ): Promise<{ readonly removed: number; readonly next: number }> {
    const { streams, direct } = this.#manager
    let removed = 0
    let next = from
    for (let examined = 0; examined < maxExamined; examined++) {
      const found = await direct.getMessage(stream, { seq: next, next_by_subj: subject })
      if (found === null) return { removed, next: 1 }
      next = found.seq + 1
      if (mayRemove(found.data) && (await streams.deleteMessage(stream, found.seq, false))) {
        removed++
      }
    }
    return { removed, next }
  }

  async remove(stream: string): Promise<void> {
    try {
      await this.#manager.streams.delete(stream)
    } catch (error) {
      if (!this.#isMissing(error)) throw error
    }
  }

  async putObject(subject: string, data: Uint8Array, signal: AbortSignal): Promise<void> {
    const limit = (this.#connection.info?.max_payload ?? Infinity) - overheadBytes
    const bytes = Math.min(pieceBytes, limit)
    const count = Math.max(1, Math.ceil(data.length / bytes))
    const headers = this.#libraries.transport.headers()
    headers.set(countHeader, String(count))
    const stored: { readonly stream: string; readonly seq: number }[] = []
    const headerBytes = headers.toString().length
    const sizeOf = (index: number): number =>
      recordBytes(`${subject}.${index}`, pieceOf(data, index, bytes).length, headerBytes)
    let storedBytes = 0
    try {
      await forEachPiece(count, async (index) => {
        signal.throwIfAborted()
        const piece = pieceOf(data, index, bytes)
        stored.push(await this.#client.publish(`${subject}.${index}`, piece, { headers }))
        storedBytes += sizeOf(index)
      })
    } catch (error) {
      let neededBytes = 0
      for (let index = 0; index < count; index++) neededBytes += sizeOf(index)
      const problem = await this.#toProblem(error, storedBytes, neededBytes)
      const [first] = stored
      if (first !== undefined) {
        const pieces = stored.map(({ seq }) => seq)
        await this.#deletePieces(first.stream, pieces).catch(() => {})
      }
      throw problem
    }
  }

  /** Called before pieces are removed, so that the usage includes them. */
  async #toProblem(error: unknown, storedBytes: number, neededBytes: number): Promise<unknown> {
    const { JetStreamApiError } = this.#libraries.jetstream
    if (!(error instanceof JetStreamApiError && fullStoreCodes.has(error.code))) return error
    try {
      return new StoreFullError(await this.usage(), { storedBytes, neededBytes }, error)
    } catch {
      return error
    }
  }

  async usage(): Promise<StoreUsage> {
    const account = await this.#manager.getAccountInfo()
    // Streams are created without replicas, so the limit of tier R1 or of the account applies.
    const { storage, limits } = account.tiers?.['R1'] ?? account
    const { max_storage: limit } = limits
    return { heldBytes: storage, limitBytes: limit >= 0 ? limit : null }
  }

  async getObject(stream: string, subject: string): Promise<StoredObject | null> {
    const first = await this.#getPiece(stream, `${subject}.0`)
    const count = Number(first?.header.get(countHeader))
    if (first === null || !(count >= 1 && count <= maxPieces)) return null
    const found = [first]
    let isComplete = true
    await forEachPiece(count - 1, async (index) => {
      if (!isComplete) return
      const piece = await this.#getPiece(stream, `${subject}.${index + 1}`)
      if (piece === null) isComplete = false
      else found[index + 1] = piece
    })
    if (!isComplete) return null
    const data = Buffer.concat(found.map((piece) => piece.data))
    return { data, pieces: found.map(({ seq }) => seq) }
  }

  async deleteObject(
    stream: string,
    subject: string,
    pieces: readonly number[] = [],
  ): Promise<void> {
    try {
      const known = pieces.length > 0 ? pieces : (await this.getObject(stream, subject))?.pieces
      await this.#deletePieces(stream, known ?? [])
      await this.#manager.streams.purge(stream, { filter: `${subject}.*` })
    } catch (error) {
      if (!this.#isMissing(error)) throw error
    }
  }

  /**
   * Deletes pieces one by one: nats-server 2.9 counts messages removed by a purge by subject as
   * used until it is restarted, so that deleted data would fill the store's limit.
   */
  async #deletePieces(stream: string, pieces: readonly number[]): Promise<void> {
    const { streams } = this.#manager
    await forEachPiece(pieces.length, async (index) => {
      try {
        // `false`: does not overwrite the deleted data on disk.
        await streams.deleteMessage(stream, pieces[index] ?? 0, false)
      } catch (error) {
        if (!(await this.#isDeleted(stream, pieces[index] ?? 0, error))) throw error
      }
    })
  }

  /** Asks the server, because the error code for a missing message has other causes as well. */
  async #isDeleted(stream: string, seq: number, error: unknown): Promise<boolean> {
    const isAnswer = error instanceof this.#libraries.jetstream.JetStreamApiError
    if (!isAnswer || this.#isMissing(error)) return false
    return (await this.#manager.streams.getMessage(stream, { seq })) === null
  }

  async #readFrom(stream: string, subject: string, sequence: number): Promise<ReadMessage[]> {
    const { DeliverPolicy } = this.#libraries.jetstream
    const consumer = await this.#client.consumers.get(stream, {
      filter_subjects: subject,
      deliver_policy: DeliverPolicy.StartSequence,
      opt_start_seq: sequence,
    })
    const messages: ReadMessage[] = []
    try {
      for (let left = (await consumer.info()).num_pending; left > 0;) {
        const batch = await consumer.fetch({
          max_messages: Math.min(left, fetchCount),
          expires: this.#callMs,
        })
        let count = 0
        for await (const message of batch) {
          count++
          left = message.info.pending
          messages.push({ subject: message.subject, data: message.data, sequence: message.seq })
        }
        if (count === 0) throw new TimeoutError(`stream ${stream} is not read to its end`)
      }
    } finally {
      // The server would remove an unused consumer, but only after a while.
      consumer.delete().catch(() => {})
    }
    return messages
  }

  /** A replica may lag behind: only the stream's leader can say that a piece is missing. */
  async #getPiece(stream: string, subject: string): Promise<StoredMsg | null> {
    const wanted = { last_by_subj: subject }
    try {
      const found = await this.#manager.direct.getMessage(stream, wanted)
      if (found !== null) return found
    } catch (error) {
      const { RequestError } = this.#libraries.transport
      if (!(error instanceof RequestError && error.isNoResponders())) throw error
    }
    return this.#getLast(stream, subject)
  }

  async #getLast(stream: string, subject: string): Promise<StoredMsg | null> {
    try {
      return await this.#manager.streams.getMessage(stream, { last_by_subj: subject })
    } catch (error) {
      if (this.#isMissing(error)) return null
      throw error
    }
  }

  #isMissing(error: unknown): boolean {
    const { JetStreamApiCodes, JetStreamApiError } = this.#libraries.jetstream
    return error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound
  }
}

const pieceOf = (data: Uint8Array, index: number, bytes: number): Uint8Array =>
  data.subarray(index * bytes, (index + 1) * bytes)

/** The size that the server counts for a message on disk: the content and its framing. */
const recordBytes = (subject: string, bytes: number, headerBytes: number): number =>
  30 + subject.length + bytes + (headerBytes > 0 ? 4 + headerBytes : 0)

/** Runs a few calls at a time. After a failure, starts no more and waits for the running ones. */
async function forEachPiece(count: number, work: (index: number) => Promise<void>): Promise<void> {
  let next = 0
  const run = async (): Promise<void> => {
    while (next < count) {
      try {
        await work(next++)
      } catch (error) {
        next = count
        throw error
      }
    }
  }
  const runs = Array.from({ length: Math.min(count, parallelPieces) }, run)
  const failed = (await Promise.allSettled(runs)).find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
