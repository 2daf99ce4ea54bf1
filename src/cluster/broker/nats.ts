/** The broker port on NATS. The only file that loads its client. */

import { readFileSync } from 'node:fs'
import { isIP } from 'node:net'
import { checkServerIdentity, type PeerCertificate } from 'node:tls'
import type * as JetStream from '@nats-io/jetstream'
import type { JetStreamClient, JetStreamManager } from '@nats-io/jetstream'
import type * as ObjectStore from '@nats-io/obj'
import type * as Transport from '@nats-io/transport-node'
import type { NatsConnection, NodeConnectionOptions } from '@nats-io/transport-node'
import { BackendError, messageOf, TimeoutError } from '../../foundation/errors.ts'
import { importPeer } from '../../runtime/import-peer.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { AppendAcks } from './append-acks.ts'
import {
  type Broker,
  type BrokerMessage,
  type BrokerStore,
  NoResponderError,
  type StoredMessage,
  type StoredStream,
} from './broker.ts'

export interface NatsOptions {
  readonly servers: readonly string[]
  /** Shown by the server's own tools. */
  readonly name: string
  readonly token?: string
  readonly user?: string
  readonly password?: string
  /** A file with a JWT and an NKey seed (`.creds`), or with a seed alone. */
  readonly credentials?: string
  readonly tls?: NatsTls
  readonly log: Log
}

/** Files in PEM form; an empty object uses the system's certificate authorities. */
export interface NatsTls {
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

/** How long the first connection and every call of the server's API may take. */
const callMs = 4000
/** Between two attempts to reconnect: with the client's default a restart is a gap of seconds. */
const reconnectMs = 100
/** A link that is cut is noticed after three of these without an answer. */
const pingMs = 2000

/** Rejects with `BackendError` within 5 s when the server or its JetStream cannot be used. */
export async function connectToNats(options: NatsOptions): Promise<Broker> {
  const libraries = await loadLibraries()
  const where = options.servers.join(', ')
  let connection: NatsConnection
  try {
    connection = await libraries.transport.connect(await toConnectionOptions(options, libraries))
  } catch (error) {
    throw unusable(where, messageOf(error), error)
  }
  try {
    const manager = await libraries.jetstream.jetstreamManager(connection, { timeout: callMs })
    return new NatsBroker(connection, manager, libraries, options)
  } catch (error) {
    await connection.close()
    const why = `JetStream is not available there: ${messageOf(error)}`
    throw unusable(where, why, error, 'Start nats-server with -js, and with -sd FOLDER.')
  }
}

function unusable(where: string, why: string, cause: unknown, hint?: string): BackendError {
  return new BackendError(maskSecrets(`the broker at ${where} cannot be used: ${why}`), {
    code: 'BrokerUnavailableError',
    cause,
    ...(hint === undefined ? {} : { hint }),
  })
}

interface Libraries {
  readonly transport: typeof Transport
  readonly jetstream: typeof JetStream
  readonly objects: typeof ObjectStore
}

/** Optional peers, loaded by those who use a cluster. */
async function loadLibraries(): Promise<Libraries> {
  try {
    const [transport, jetstream, objects] = await Promise.all([
      importPeer<typeof Transport>('@nats-io/transport-node'),
      importPeer<typeof JetStream>('@nats-io/jetstream'),
      importPeer<typeof ObjectStore>('@nats-io/obj'),
    ])
    return { transport, jetstream, objects }
  } catch (cause) {
    throw new BackendError(`the client of NATS cannot be loaded: ${messageOf(cause)}`, {
      code: 'PeerMissingError',
      hint: 'npm install @nats-io/transport-node @nats-io/jetstream @nats-io/obj',
      cause,
    })
  }
}

async function toConnectionOptions(
  options: NatsOptions,
  { transport }: Libraries,
): Promise<NodeConnectionOptions> {
  const { servers, name, token, user, password, credentials, tls } = options
  return {
    servers: [...servers],
    name,
    timeout: callMs,
    reconnectTimeWait: reconnectMs,
    reconnectJitter: reconnectMs,
    maxReconnectAttempts: -1,
    pingInterval: pingMs,
    maxPingOut: 2,
    // An error for every request in advance, for the trace of one that fails.
    noAsyncTraces: true,
    // A server that starts with another configuration may refuse for a moment.
    ignoreAuthErrorAbort: true,
    ...(credentials === undefined
      ? user === undefined
        ? token === undefined
          ? {}
          : { token }
        : { user, pass: password ?? '' }
      : { authenticator: toAuthenticator(credentials, transport) }),
    ...(tls === undefined ? {} : { tls: toTls(tls, servers) }),
  }
}

function toTls(
  { ca, cert, key }: NatsTls,
  servers: readonly string[],
): NonNullable<NodeConnectionOptions['tls']> {
  const addresses = servers.map(hostOf).filter((host) => isIP(host) !== 0)
  return {
    ...(addresses.length === 0 ? {} : { checkServerIdentity: identityOf(addresses) }),
    ...(ca === undefined ? {} : { caFile: ca }),
    ...(cert === undefined ? {} : { certFile: cert }),
    ...(key === undefined ? {} : { keyFile: key }),
  }
}

/** The client names no server that is given by its address, so that Node takes it for localhost. */
const identityOf =
  (addresses: readonly string[]) =>
  (name: string, certificate: PeerCertificate): Error | undefined => {
    const names = name === 'localhost' ? [...addresses, name] : [name]
    const errors = names.map((one) => checkServerIdentity(one, certificate))
    return errors.includes(undefined) ? undefined : errors[0]
  }

const hostOf = (server: string): string => {
  const url = URL.parse(server.includes('://') ? server : `nats://${server}`)
  return url?.hostname.replace(/^\[|\]$/g, '') ?? ''
}

function toAuthenticator(file: string, transport: Libraries['transport']) {
  const content = readFileSync(file)
  const isSeed = content.toString('utf8').trim().startsWith('SU')
  return isSeed
    ? transport.nkeyAuthenticator(Buffer.from(content.toString('utf8').trim()))
    : transport.credsAuthenticator(content)
}

class NatsBroker implements Broker {
  readonly url: string
  readonly store: BrokerStore
  readonly #connection: NatsConnection
  readonly #libraries: Libraries
  readonly #log: Log
  readonly #listeners = new Set<(isConnected: boolean) => void>()
  #isConnected = true

  constructor(
    connection: NatsConnection,
    manager: JetStreamManager,
    libraries: Libraries,
    { servers, log }: NatsOptions,
  ) {
    this.#connection = connection
    this.#libraries = libraries
    this.#log = log
    this.url = servers.join(', ')
    this.store = new NatsStore(connection, manager, libraries)
    void this.#followStatus()
  }

  get isConnected(): boolean {
    return this.#isConnected
  }

  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1_048_576
  }

  publish(subject: string, data: Uint8Array): void {
    // Closed meanwhile: whoever needs an acknowledgement sees that it does not come.
    if (!this.#connection.isClosed()) this.#connection.publish(subject, data)
  }

  subscribe(subject: string, onMessage: (message: BrokerMessage) => void): () => void {
    const subscription = this.#connection.subscribe(subject, {
      callback: (error, message) => {
        if (error !== null) return
        try {
          onMessage({
            subject: message.subject,
            data: message.data,
            respond: (data) => void message.respond(data),
          })
        } catch (thrown) {
          // It would end the connection.
          this.#log.warn('BrokerMessageFailed', `a message failed: ${messageOf(thrown)}`)
        }
      },
    })
    return () => subscription.unsubscribe()
  }

  async request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    try {
      return (await this.#connection.request(subject, data, { timeout: timeoutMs })).data
    } catch (error) {
      throw toRequestError(error, subject, this.#libraries)
    }
  }

  async requestAccepted(
    subject: string,
    data: Uint8Array,
    timeoutMs: number,
    accepts: (answer: Uint8Array) => boolean,
  ): Promise<Uint8Array> {
    try {
      const options = { maxWait: timeoutMs, noMux: true } as const
      const answers = await this.#connection.requestMany(subject, data, options)
      for await (const answer of answers) if (accepts(answer.data)) return answer.data
    } catch (error) {
      throw toRequestError(error, subject, this.#libraries)
    }
    throw new TimeoutError(`no answer from ${subject} is accepted`)
  }

  onConnection(listener: (isConnected: boolean) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    await this.#connection.close()
  }

  async #followStatus(): Promise<void> {
    for await (const { type } of this.#connection.status()) {
      const isConnected =
        type === 'reconnect' ? true : type === 'disconnect' ? false : this.#isConnected
      if (isConnected === this.#isConnected) continue
      this.#isConnected = isConnected
      for (const listener of this.#listeners) listener(isConnected)
    }
  }
}

function toRequestError(error: unknown, subject: string, { transport }: Libraries): Error {
  const isAlone = error instanceof transport.RequestError && error.isNoResponders()
  if (isAlone || error instanceof transport.errors.NoRespondersError) {
    return new NoResponderError(`nobody answers at ${subject}`)
  }
  return new TimeoutError(`no answer from ${subject}: ${messageOf(error)}`, { cause: error })
}

class NatsStore implements BrokerStore {
  readonly #connection: NatsConnection
  readonly #manager: JetStreamManager
  readonly #libraries: Libraries
  readonly #client: JetStreamClient
  readonly #acks: AppendAcks

  constructor(connection: NatsConnection, manager: JetStreamManager, libraries: Libraries) {
    this.#connection = connection
    this.#manager = manager
    this.#libraries = libraries
    this.#client = libraries.jetstream.jetstream(connection, { timeout: callMs })
    this.#acks = new AppendAcks(connection, libraries.transport.createInbox())
  }

  async openStream(
    name: string,
    subjects: readonly string[],
    maxAgeSeconds: number,
  ): Promise<boolean> {
    if (await this.hasStream(name)) return false
    await this.#manager.streams.add({
      name,
      subjects: [...subjects],
      max_age: maxAgeSeconds * 1e9,
      storage: this.#libraries.jetstream.StorageType.File,
    })
    return true
  }

  async hasStream(name: string): Promise<boolean> {
    try {
      await this.#manager.streams.info(name)
      return true
    } catch (error) {
      if (this.#isMissing(error)) return false
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

  async read(stream: string, subject: string): Promise<StoredMessage[]> {
    const consumer = await this.#client.consumers.get(stream, { filter_subjects: subject })
    const messages: StoredMessage[] = []
    for (let left = (await consumer.info()).num_pending; left > 0;) {
      const batch = await consumer.fetch({ max_messages: Math.min(left, 256), expires: callMs })
      let count = 0
      for await (const message of batch) {
        count++
        left = message.info.pending
        messages.push({ subject: message.subject, data: message.data })
      }
      if (count === 0) throw new TimeoutError(`stream ${stream} is not read to its end`)
    }
    await consumer.delete()
    return messages
  }

  async remove(stream: string): Promise<void> {
    for (const name of [stream, `OBJ_${stream}`]) {
      try {
        await this.#manager.streams.delete(name)
      } catch (error) {
        if (!this.#isMissing(error)) throw error
      }
    }
  }

  async putObject(bucket: string, name: string, data: Uint8Array): Promise<void> {
    const objects = await new this.#libraries.objects.Objm(this.#connection).create(bucket)
    await objects.putBlob({ name }, data)
  }

  async getObject(bucket: string, name: string): Promise<Uint8Array | null> {
    try {
      const objects = await new this.#libraries.objects.Objm(this.#connection).open(bucket)
      return await objects.getBlob(name)
    } catch (error) {
      if (this.#isMissing(error)) return null
      throw error
    }
  }

  async deleteObject(bucket: string, name: string): Promise<void> {
    const objects = await new this.#libraries.objects.Objm(this.#connection).open(bucket)
    await objects.delete(name)
  }

  #isMissing(error: unknown): boolean {
    const { JetStreamApiCodes, JetStreamApiError } = this.#libraries.jetstream
    return error instanceof JetStreamApiError && error.code === JetStreamApiCodes.StreamNotFound
  }
}
