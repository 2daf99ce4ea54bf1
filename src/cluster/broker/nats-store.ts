/** Implements `BrokerStore` on NATS: streams, and objects as chunks in these streams. */

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

export interface NatsLibraries {
  readonly transport: typeof Transport
  readonly jetstream: typeof JetStream
}

interface ReadMessage extends StoredMessage {
  readonly sequence: number
}

const fetchSize = 256
const maxExamined = 256
const chunkBytes = 128 * 1024
const headerOverheadBytes = 1024
const chunkCountHeader = 'Tutti-Pieces'
const maxChunks = 2 ** 20
const maxParallelChunks = 8
/** The server's error code if a stream of this name exists with other settings. */
const nameTakenCode = 10_058
/** The server's error codes if the subject's last message is not the expected one. */
const wrongSequenceCodes: ReadonlySet<number> = new Set([10_071, 10_164])

/**
 * Stores streams and objects in JetStream. The client's own object store leaves consumers in the
 * server and may wait forever. Here, every request has a time limit.
 */
export class NatsStore implements BrokerStore {
  readonly #connection: NatsConnection
  readonly #manager: JetStreamManager
  readonly #libraries: NatsLibraries
  readonly #client: JetStreamClient
  readonly #callTimeoutMs: number
  readonly #acks: AppendAcks

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
    this.#callTimeoutMs = callMs
    this.#acks = new AppendAcks(connection, libraries.transport.createInbox())
  }

  async openStream(name: string, settings: StreamSettings): Promise<OpenedStream> {
    const known = await this.#findInfo(name)
    if (known === null) return this.#createStream(name, settings)
    const { created, config } = known
    const { subjects: stored, description = '' } = config
    const subjects = [...new Set([...stored, ...settings.subjects])]
    const label = description === '' ? settings.label : description
    // Another program may have created this stream, with other subjects and without a label.
    if (subjects.length > stored.length || description === '') {
      await this.#manager.streams.update(name, { subjects, description: label })
    }
    return { isCreated: false, label, created }
  }

  async #createStream(name: string, settings: StreamSettings): Promise<OpenedStream> {
    const { subjects, label, maxAgeSeconds } = settings
    const { JetStreamApiError, StorageType } = this.#libraries.jetstream
    try {
      const { created } = await this.#manager.streams.add({
        name,
        subjects: [...subjects],
        description: label,
        max_age: maxAgeSeconds * 1e9,
        storage: StorageType.File,
        allow_direct: true,
      })
      return { isCreated: true, label, created }
    } catch (error) {
      if (!(error instanceof JetStreamApiError && error.code === nameTakenCode)) throw error
      // In the meantime, another process has created the stream.
      return this.openStream(name, settings)
    }
  }

  async findStream(name: string): Promise<StreamState | null> {
    const found = await this.#findInfo(name)
    return found && { created: found.created, label: found.config.description ?? '' }
  }

  async #findInfo(name: string): Promise<StreamInfo | null> {
    try {
      return await this.#manager.streams.info(name)
    } catch (error) {
      if (this.#isStreamMissing(error)) return null
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
    return (await this.#getLastMessage(stream, subject))?.seq ?? 0
  }

  async appendAfter(subject: string, data: Uint8Array, sequence: number): Promise<boolean> {
    const { JetStreamApiError } = this.#libraries.jetstream
    try {
      await this.#client.publish(subject, data, { expect: { lastSubjectSequence: sequence } })
      return true
    } catch (error) {
      if (error instanceof JetStreamApiError && wrongSequenceCodes.has(error.code)) return false
      throw await this.#toStoreError(error, 0, computeDiskBytes(subject, data.length, 0))
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
    // More messages may have arrived since the request for the state of the stream.
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
      if (!this.#isStreamMissing(error)) throw error
    }
  }

  async putObject(subject: string, data: Uint8Array, signal: AbortSignal): Promise<void> {
    const limit = (this.#connection.info?.max_payload ?? Infinity) - headerOverheadBytes
    const bytes = Math.min(chunkBytes, limit)
    const count = Math.max(1, Math.ceil(data.length / bytes))
    const headers = this.#libraries.transport.headers()
    headers.set(chunkCountHeader, String(count))
    const stored: { readonly stream: string; readonly seq: number }[] = []
    const headerBytes = headers.toString().length
    const computeSize = (index: number): number =>
      computeDiskBytes(`${subject}.${index}`, sliceChunk(data, index, bytes).length, headerBytes)
    let storedBytes = 0
    try {
      await forEachChunk(count, async (index) => {
        signal.throwIfAborted()
        const chunk = sliceChunk(data, index, bytes)
        stored.push(await this.#client.publish(`${subject}.${index}`, chunk, { headers }))
        storedBytes += computeSize(index)
      })
    } catch (error) {
      let neededBytes = 0
      for (let index = 0; index < count; index++) neededBytes += computeSize(index)
      const problem = await this.#toStoreError(error, storedBytes, neededBytes)
      const [first] = stored
      if (first !== undefined) {
        const chunks = stored.map(({ seq }) => seq)
        await this.#deleteChunks(first.stream, chunks).catch(() => {})
      }
      throw problem
    }
  }

  /**
   * Converts the error of a full store. Called before chunks are removed, so that the usage
   * includes them.
   */
  async #toStoreError(error: unknown, storedBytes: number, neededBytes: number): Promise<unknown> {
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
    const first = await this.#getChunk(stream, `${subject}.0`)
    const count = Number(first?.header.get(chunkCountHeader))
    if (first === null || !(count >= 1 && count <= maxChunks)) return null
    const found = [first]
    let isComplete = true
    await forEachChunk(count - 1, async (index) => {
      if (!isComplete) return
      const chunk = await this.#getChunk(stream, `${subject}.${index + 1}`)
      if (chunk === null) isComplete = false
      else found[index + 1] = chunk
    })
    if (!isComplete) return null
    const data = Buffer.concat(found.map((chunk) => chunk.data))
    return { data, chunks: found.map(({ seq }) => seq) }
  }

  async deleteObject(
    stream: string,
    subject: string,
    chunks: readonly number[] = [],
  ): Promise<void> {
    try {
      const known = chunks.length > 0 ? chunks : (await this.getObject(stream, subject))?.chunks
      await this.#deleteChunks(stream, known ?? [])
      await this.#manager.streams.purge(stream, { filter: `${subject}.*` })
    } catch (error) {
      if (!this.#isStreamMissing(error)) throw error
    }
  }

  /**
   * Deletes each chunk by its number, because nats-server 2.9 counts purged messages as used space.
   */
  async #deleteChunks(stream: string, chunks: readonly number[]): Promise<void> {
    const { streams } = this.#manager
    await forEachChunk(chunks.length, async (index) => {
      try {
        // `false` means that the deleted data is not overwritten on disk.
        await streams.deleteMessage(stream, chunks[index] ?? 0, false)
      } catch (error) {
        if (!(await this.#isMessageDeleted(stream, chunks[index] ?? 0, error))) throw error
      }
    })
  }

  /** Asks whether the message is gone, because the error code has other causes as well. */
  async #isMessageDeleted(stream: string, seq: number, error: unknown): Promise<boolean> {
    const isAnswer = error instanceof this.#libraries.jetstream.JetStreamApiError
    if (!isAnswer || this.#isStreamMissing(error)) return false
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
          max_messages: Math.min(left, fetchSize),
          expires: this.#callTimeoutMs,
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
      // The server removes unused consumers itself, but only after a while.
      consumer.delete().catch(() => {})
    }
    return messages
  }

  /** If a replica does not have the chunk, asks the stream's leader: the replica may lag behind. */
  async #getChunk(stream: string, subject: string): Promise<StoredMsg | null> {
    const wanted = { last_by_subj: subject }
    try {
      const found = await this.#manager.direct.getMessage(stream, wanted)
      if (found !== null) return found
    } catch (error) {
      const { RequestError } = this.#libraries.transport
      if (!(error instanceof RequestError && error.isNoResponders())) throw error
    }
    return this.#getLastMessage(stream, subject)
  }

  async #getLastMessage(stream: string, subject: string): Promise<StoredMsg | null> {
    try {
      return await this.#manager.streams.getMessage(stream, { last_by_subj: subject })
    } catch (error) {
      if (this.#isStreamMissing(error)) return null
      throw error
    }
  }

  #isStreamMissing(error: unknown): boolean {
    const { JetStreamApiCodes, JetStreamApiError } = this.#libraries.jetstream
    return error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound
  }
}

const sliceChunk = (data: Uint8Array, index: number, bytes: number): Uint8Array =>
  data.subarray(index * bytes, (index + 1) * bytes)

/** The size on disk that the server counts for a message: its content and its framing. */
const computeDiskBytes = (subject: string, bytes: number, headerBytes: number): number =>
  30 + subject.length + bytes + (headerBytes > 0 ? 4 + headerBytes : 0)

/** Calls `work` for a few chunks at a time. After a failure, starts no more calls and rejects. */
async function forEachChunk(count: number, work: (index: number) => Promise<void>): Promise<void> {
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
  const runs = Array.from({ length: Math.min(count, maxParallelChunks) }, run)
  const failed = (await Promise.allSettled(runs)).find(({ status }) => status === 'rejected')
  if (failed?.status === 'rejected') throw failed.reason
}
