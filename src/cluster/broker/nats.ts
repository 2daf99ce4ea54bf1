/** Implements `Broker` on NATS. This is the only file that loads the NATS client. */

import { isIP, type Socket } from 'node:net'
import { checkServerIdentity, type PeerCertificate } from 'node:tls'
import { AsyncLocalStorage } from 'node:async_hooks'
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import type * as Transport from '@nats-io/transport-node'
import type * as JetStream from '@nats-io/jetstream'
import type { JetStreamManager } from '@nats-io/jetstream'
import type { NatsConnection, NodeConnectionOptions } from '@nats-io/transport-node'
import { systemClock } from '../../foundation/clock.ts'
import { BackendError, messageOf, TimeoutError } from '../../foundation/errors.ts'
import { importPeer } from '../../runtime/import-peer.ts'
import type { Log } from '../../foundation/log.ts'
import { definedFields } from '../../foundation/options.ts'
import type { ServerAddress } from '../../runtime/server/node-servers.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { type Broker, type BrokerMessage, type BrokerStore, NoResponderError } from './broker.ts'
import { type NatsLibraries, NatsStore } from './nats-store.ts'
import { findRefusal, suggestFix, checkPayloadLimit } from './server-greeting.ts'

export interface NatsOptions {
  readonly servers: readonly string[]
  /** The client's name. The tools of NATS show it. */
  readonly name: string
  readonly token?: string
  readonly user?: string
  readonly password?: string
  /** The content of a `.creds` file, which has a JWT and an NKey seed, or only an NKey seed. */
  readonly credentials?: string
  readonly tls?: NatsTls
  readonly log: Log
}

/** How to use TLS. With an empty object, the system's certificate authorities apply. */
export interface NatsTls {
  /** The path of a PEM file, or the text of a certificate. */
  readonly ca?: string
  readonly cert?: string
  readonly key?: string
}

const defaultPort = 4222
const callTimeoutMs = 4000
/** The time limit for connecting, divided among the servers of the list. */
const connectTimeoutMs = 3000
/** How many times to try a server that sends its greeting, but accepts no client in time. */
const maxConnectAttempts = 5
/** With the client's default delay, a server restart would cost seconds. */
const reconnectDelayMs = 100
/** The interval of pings. A broken link is detected after three pings without an answer. */
const pingIntervalMs = 2000

/** Whether the text is a certificate, not the path of one. */
export const isPemText = (text: string): boolean => text.startsWith('-----BEGIN ')

/**
 * Rejects with `BackendError` within 5 s if there is no server or JetStream, or if the server
 * refuses this client. A server that sends its greeting but is slow gets more time.
 */
export async function connectToNats(options: NatsOptions): Promise<Broker> {
  const libraries = await loadLibraries()
  const serverNames = options.servers.join(', ')
  let connection: NatsConnection
  try {
    const settings = toConnectionOptions(options, libraries)
    connection = await openConnection(settings, options.servers, libraries)
    const limitProblem = checkPayloadLimit(connection.info?.max_payload)
    if (limitProblem !== null) {
      await connection.close()
      throw new Error(limitProblem)
    }
  } catch (error) {
    const isSilent = error instanceof libraries.transport.TimeoutError
    const why = isSilent ? 'it does not answer' : messageOf(error)
    throw toUnavailableError(serverNames, why, error, suggestFix(why, options))
  }
  try {
    const manager = await libraries.jetstream.jetstreamManager(connection, {
      timeout: callTimeoutMs,
    })
    return new NatsBroker(connection, manager, libraries, options)
  } catch (error) {
    await connection.close()
    const why = `JetStream is not available there: ${messageOf(error)}`
    throw toUnavailableError(
      serverNames,
      why,
      error,
      'Start nats-server with -js, and with -sd FOLDER.',
    )
  }
}

async function openConnection(
  settings: NodeConnectionOptions,
  servers: readonly string[],
  { transport }: NatsLibraries,
): Promise<NatsConnection> {
  for (let attempt = 1; ; attempt++) {
    const call = await callWithSockets(() => transport.connect(settings))
    if ('value' in call) return call.value
    // These errors also mean a timeout: the server limits the time for authentication and for TLS.
    const isTimeout =
      call.error instanceof transport.TimeoutError ||
      /authentication timeout|disconnected before secure TLS|ECONNRESET/i.test(
        messageOf(call.error),
      )
    const isSlow = isTimeout && call.hasReceived
    if (!isSlow || attempt === maxConnectAttempts) throw call.error
    if (attempt === 1) await throwUnlessSlow(servers, settings)
  }
}

async function throwUnlessSlow(
  servers: readonly string[],
  { tls }: NodeConnectionOptions,
): Promise<void> {
  const hasCertificate = tls?.certFile !== undefined
  const asked = servers.map((server) =>
    findRefusal(parseAddress(server), hasCertificate, systemClock),
  )
  const refusals = await Promise.all(asked)
  const [first] = refusals
  if (typeof first === 'string' && !refusals.includes(null)) throw new Error(first)
}

function toUnavailableError(
  where: string,
  why: string,
  cause: unknown,
  hint?: string,
): BackendError {
  return new BackendError(maskSecrets(`the broker at ${where} cannot be used: ${why}`), {
    code: 'BrokerUnavailableError',
    cause,
    ...(hint === undefined ? {} : { hint }),
  })
}

/** Starts to load the NATS client, for a process that will connect soon. */
export function preloadClient(): void {
  // If a package is missing, the call that connects reports it.
  loadLibraries().catch(() => {})
}

/** Loads the optional peer dependencies, which only clusters need. */
async function loadLibraries(): Promise<NatsLibraries> {
  try {
    const [transport, jetstream] = await Promise.all([
      importPeer<typeof Transport>('@nats-io/transport-node'),
      importPeer<typeof JetStream>('@nats-io/jetstream'),
    ])
    return { transport, jetstream }
  } catch (cause) {
    throw new BackendError(`the client of NATS cannot be loaded: ${messageOf(cause)}`, {
      code: 'PeerMissingError',
      hint: 'npm install @nats-io/transport-node @nats-io/jetstream',
      cause,
    })
  }
}

function toConnectionOptions(
  options: NatsOptions,
  { transport }: NatsLibraries,
): NodeConnectionOptions {
  const { servers, name, tls } = options
  return {
    servers: [...servers],
    name,
    timeout: Math.ceil(connectTimeoutMs / servers.length),
    reconnectTimeWait: reconnectDelayMs,
    reconnectJitter: reconnectDelayMs,
    maxReconnectAttempts: -1,
    pingInterval: pingIntervalMs,
    maxPingOut: 2,
    // Otherwise, the client creates an error for each request, only for its stack trace.
    noAsyncTraces: true,
    // A server that restarts with another configuration may refuse clients for a moment.
    ignoreAuthErrorAbort: true,
    ...toLogin(options, transport),
    ...(tls === undefined ? {} : { tls: toTls(tls, servers) }),
  }
}

function toTls(
  { ca, cert, key }: NatsTls,
  servers: readonly string[],
): NonNullable<NodeConnectionOptions['tls']> {
  const addresses = servers
    .map((server) => parseAddress(server).host)
    .filter((host) => isIP(host) !== 0)
  return {
    ...(addresses.length === 0 ? {} : { checkServerIdentity: createIdentityCheck(addresses) }),
    ...(ca !== undefined && isPemText(ca) ? { ca } : definedFields({ caFile: ca })),
    ...definedFields({ certFile: cert, keyFile: key }),
  }
}

/**
 * For an IP address, the client passes no name to Node, which then checks the certificate for
 * `localhost`. In this case, the certificate may also be for one of the given addresses.
 */
const createIdentityCheck =
  (addresses: readonly string[]) =>
  (name: string, certificate: PeerCertificate): Error | undefined => {
    const names = name === 'localhost' ? [...addresses, name] : [name]
    const errors = names.map((one) => checkServerIdentity(one, certificate))
    return errors.includes(undefined) ? undefined : errors[0]
  }

function parseAddress(server: string): ServerAddress {
  const url = URL.parse(server.includes('://') ? server : `nats://${server}`)
  const host = url?.hostname.replace(/^\[|\]$/g, '') ?? ''
  return { host, port: Number(url?.port) || defaultPort }
}

function toLogin(
  { credentials, user, password = '', token }: NatsOptions,
  { nkeyAuthenticator, credsAuthenticator }: NatsLibraries['transport'],
): NodeConnectionOptions {
  if (credentials !== undefined) {
    const isSeed = credentials.startsWith('SU')
    const content = Buffer.from(isSeed ? credentials : `${credentials}\n`)
    return { authenticator: (isSeed ? nkeyAuthenticator : credsAuthenticator)(content) }
  }
  if (user !== undefined) return { user, pass: password }
  return token === undefined ? {} : { token }
}

class NatsBroker implements Broker {
  readonly url: string
  readonly store: BrokerStore
  readonly #connection: NatsConnection
  readonly #libraries: NatsLibraries
  readonly #log: Log
  readonly #listeners = new Set<(isConnected: boolean) => void>()
  readonly #refusedKinds = new Set<string>()
  #isConnected = true

  constructor(
    connection: NatsConnection,
    manager: JetStreamManager,
    libraries: NatsLibraries,
    { servers, log }: NatsOptions,
  ) {
    this.#connection = connection
    this.#libraries = libraries
    this.#log = log
    this.url = servers.join(', ')
    this.store = new NatsStore(connection, manager, libraries, callTimeoutMs)
    this.#watchStatus().catch((error: unknown) =>
      this.#warnOfFailure('the state of the connection is unknown', error),
    )
  }

  get isConnected(): boolean {
    return this.#isConnected
  }

  get maxPayload(): number {
    return this.#connection.info?.max_payload ?? 1_048_576
  }

  publish(subject: string, data: Uint8Array): void {
    // The connection may have been closed already. Callers notice the missing acknowledgement.
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
            respond: (data) => {
              message.respond(data)
            },
          })
        } catch (thrown) {
          // The client would close the connection after an exception. There is no second call of
          // `onMessage`, because it would fail in the same way.
          this.#warnOfFailure('a message could not be handled, and its content is lost', thrown)
        }
      },
    })
    return () => subscription.unsubscribe()
  }

  async request(subject: string, data: Uint8Array, timeoutMs: number): Promise<Uint8Array> {
    try {
      return (await this.#connection.request(subject, data, { timeout: timeoutMs })).data
    } catch (error) {
      throw toRequestError(error, this.#libraries)
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
      throw toRequestError(error, this.#libraries)
    }
    throw new TimeoutError('no answer signed with the token came in time')
  }

  onConnection(listener: (isConnected: boolean) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async close(): Promise<void> {
    this.#listeners.clear()
    await this.#connection.close()
  }

  #warnOfFailure(what: string, error: unknown): void {
    const cause = error instanceof Error ? (error.stack ?? error.message) : String(error)
    this.#log.warn('BrokerMessageFailed', `${what}: ${maskSecrets(cause)}`)
  }

  /** Logs that the server does not permit a subject, once per kind. The calls do not fail. */
  #warnOfRefusal(error: Error): void {
    if (!(error instanceof this.#libraries.transport.errors.PermissionViolationError)) return
    const { operation, subject } = error
    const [first = ''] = subject.split('.')
    const kind = `${operation} ${first}`
    if (this.#refusedKinds.has(kind)) return
    this.#refusedKinds.add(kind)
    const what = operation === 'publish' ? 'publish to' : 'subscribe to'
    this.#log.warn(
      'BrokerPermissionMissing',
      `the broker does not allow this user to ${what} ${subject}; docs/cluster.md lists the ` +
        'subjects that drivers and agents need',
    )
  }

  async #watchStatus(): Promise<void> {
    for await (const status of this.#connection.status()) {
      const { type } = status
      if (type === 'error') this.#warnOfRefusal(status.error)
      const isConnected =
        type === 'reconnect' ? true : type === 'disconnect' ? false : this.#isConnected
      if (isConnected === this.#isConnected) continue
      this.#isConnected = isConnected
      for (const listener of this.#listeners) {
        try {
          listener(isConnected)
        } catch (error) {
          this.#warnOfFailure('a change of the connection could not be handled', error)
        }
      }
    }
  }
}

function toRequestError(error: unknown, { transport }: NatsLibraries): Error {
  const hasNoResponder = error instanceof transport.RequestError && error.isNoResponders()
  if (hasNoResponder || error instanceof transport.errors.NoRespondersError) {
    return new NoResponderError('no process answers: it has exited or is not connected')
  }
  return new TimeoutError(`no answer: ${messageOf(error)}`, { cause: error })
}

/** On this channel, Node publishes every client socket synchronously when it is created. */
const socketChannel = 'net.client.socket'

/** The result of a call. `hasReceived`: whether the sockets of the call have received any data. */
type SocketCall<T> =
  | { readonly value: T }
  | { readonly error: unknown; readonly hasReceived: boolean }

/**
 * Runs a call. If it fails, destroys the sockets that it created: the NATS client leaves a
 * connecting socket open, which would keep the process alive for seconds or minutes.
 */
async function callWithSockets<T>(call: () => Promise<T>): Promise<SocketCall<T>> {
  const sockets: Socket[] = []
  const calls = new AsyncLocalStorage<Socket[]>()
  const collect = (message: unknown): void => {
    calls.getStore()?.push((message as { readonly socket: Socket }).socket)
  }
  subscribe(socketChannel, collect)
  try {
    return { value: await calls.run(sockets, call) }
  } catch (error) {
    const hasReceived = sockets.some((socket) => socket.bytesRead > 0)
    for (const socket of sockets) socket.destroy()
    return { error, hasReceived }
  } finally {
    unsubscribe(socketChannel, collect)
    calls.disable()
  }
}
