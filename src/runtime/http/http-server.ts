/** An HTTP server with limits for every client, a table of routes, guards, and a graceful stop. */

import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import { createServer as createTlsServer, Server as TlsServer } from 'node:https'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { definedFields } from '../../foundation/options.ts'
import { Service } from '../../foundation/service.ts'
import { type ErrorReplies, HttpError } from './http-error.ts'
import {
  HttpExchange,
  type HttpExchangeOptions,
  lingerMs,
  securityHeaders,
} from './http-exchange.ts'
import { checkBodyHead, parseJson, readBody } from './json-body.ts'
import {
  expectListenAddress,
  type ListeningServer,
  type ListenOptions,
  startListening,
} from './listening.ts'
import { isPreflight, type KeyRing, preflightHeaders, RequestGuard } from './request-guard.ts'
import { type TlsFiles, watchTlsFiles } from './tls.ts'

export interface Route {
  readonly method: 'GET' | 'POST' | 'DELETE'
  /** Compared literally, without decoding. A trailing `*` matches any text. */
  readonly path: string
  /** Whether the route needs no API key and is served while the server closes. Default `false`. */
  readonly isPublic?: boolean
  /** The maximum size of the body. Absent if no body is read. */
  readonly bodyBytes?: number
  /** Whether a body of JSON may have any `Content-Type`. Default `false`. */
  readonly isAnyTypeAccepted?: boolean
  /** Answers a request. `body` is the parsed JSON. `rest` is the text that matched `*`. */
  answer(exchange: HttpExchange, body: unknown, rest: string): Promise<void> | void
}

/** The limits for all clients of a server. */
export interface HttpLimits {
  /** The maximum depth of nested arrays and objects in a body. Default 64, at most 1000. */
  readonly depth: number
  /** The maximum length of a request's URL in characters. Default 2048. */
  readonly urlLength: number
  /** The maximum size of all headers in bytes. Default 16 KiB. */
  readonly headerBytes: number
  /** The maximum number of headers of a request. Default 100. */
  readonly headerCount: number
  /** The maximum time until all headers are received. Default 10 s. */
  readonly headersTimeoutMs: number
  /** The maximum time until the whole request is received. Default 30 s. */
  readonly requestTimeoutMs: number
  /** The interval at which the two time limits above are checked. Default 2 s. */
  readonly connectionsCheckMs: number
  /** How long an idle connection is kept. Default 75 s. */
  readonly keepAliveMs: number
  /** The maximum number of connections. Beyond it, new ones replace idle ones. Default 1024. */
  readonly maxConnections: number
  /** The maximum number of requests on one connection. Default 1000. */
  readonly maxRequestsPerSocket: number
  /** How many seconds a client may read nothing before its connection is closed. Default 30. */
  readonly slowReaderSeconds: number
  /** How many seconds stopping waits for the requests in flight. Default 30. */
  readonly drainSeconds: number
  /** Names that a `Host` header may have besides those of this server. Default none. */
  readonly allowedHosts: readonly string[]
  /** Allowed origins of web pages besides loopback, such as `https://app.example`. Default none. */
  readonly allowedOrigins: readonly string[]
}

/** The default limits, which suit one machine. */
export const defaultHttpLimits: HttpLimits = {
  depth: 64,
  urlLength: 2048,
  headerBytes: 16_384,
  headerCount: 100,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  connectionsCheckMs: 2000,
  keepAliveMs: 75_000,
  maxConnections: 1024,
  maxRequestsPerSocket: 1000,
  slowReaderSeconds: 30,
  drainSeconds: 30,
  allowedHosts: [],
  allowedOrigins: [],
}

export interface HttpServerOptions extends ListenOptions {
  /** The keys for routes that are not public. Required on a host other than loopback. */
  readonly keys: KeyRing | null
  /** The first part of all paths, such as `/llm`. Default none. */
  readonly basePath?: string
  /** The certificate for HTTPS. Default: HTTP. */
  readonly tls?: TlsFiles | null
  /** Called when a request has ended, with the time that it took. */
  readonly onEnded?: (exchange: HttpExchange, seconds: number) => void
  /** Whether cookies replace the API key. `Origin` must then equal `Host`. Default `false`. */
  readonly usesCookies?: boolean
  /** Alternating names and values, for every response. Default: `securityHeaders`. */
  readonly headers?: readonly string[]
  readonly limits: HttpLimits
  /** The option that sets `limits.allowedHosts`. Errors about a `Host` name it. */
  readonly hostOption?: string
  readonly log: Log
  readonly errors: ErrorReplies
}

/** How long aborted requests may take to send their responses. */
const abortedSendMs = 1000

/** `stop()` waits `limits.drainSeconds` for requests in flight, then aborts them. */
export class HttpServer extends Service {
  readonly #options: HttpServerOptions
  readonly #server: Server | TlsServer
  readonly #exchangeOptions: HttpExchangeOptions
  readonly #inFlight = new Set<HttpExchange>()
  /** The requests in flight of each connection. The longest idle connection comes first. */
  readonly #connections = new Map<Duplex, Set<HttpExchange>>()
  /** With TLS: the TCP connections, including those whose handshake is not complete. */
  readonly #rawConnections = new Set<Socket>()
  #certificate: { close(): void } | null = null
  /** Routes with the same path differ in their methods. */
  readonly #routes = new Map<string, readonly Route[]>()
  #toUnknownPath: (path: string) => HttpError = closingError
  #listening: ListeningServer | null = null
  #guard: RequestGuard | null = null
  isDraining = false
  #onIdle: (() => void) | undefined

  constructor(options: HttpServerOptions) {
    super()
    const { clock, errors, limits, keys, usesCookies = false, basePath = '' } = options
    expectListenAddress({ ...options, needsKey: keys !== null || usesCookies })
    this.#options = options
    this.#exchangeOptions = {
      clock,
      errors,
      isClosing: () => this.isDraining,
      slowReaderSeconds: limits.slowReaderSeconds,
      headers: options.headers ?? securityHeaders,
      basePath,
    }
    this.#server = createLimitedServer(options, (socket) => this.#isAnswering(socket))
    if (this.#server instanceof TlsServer) {
      this.#server.on('connection', (socket: Socket) => this.#addRawConnection(socket))
      this.#server.on('secureConnection', (socket) => this.#addConnection(socket))
    } else this.#server.on('connection', (socket) => this.#addConnection(socket))
    const handle = (request: IncomingMessage, response: ServerResponse): void => {
      void this.#handle(request, response)
    }
    for (const event of requestEvents) this.#server.on(event, handle)
  }

  /** `http://host:port` and the base path; empty before the server has started. */
  get endpoint(): string {
    const { basePath = '' } = this.#options
    return this.#listening === null ? '' : `${this.#listening.endpoint}${basePath}`
  }

  /** Replaces all routes. A request for any other path gets the error from `toUnknownPath`. */
  setRoutes(routes: readonly Route[], toUnknownPath: (path: string) => HttpError): void {
    this.#routes.clear()
    for (const route of routes) {
      this.#routes.set(route.path, [...(this.#routes.get(route.path) ?? []), route])
    }
    this.#toUnknownPath = toUnknownPath
  }

  /** Refuses new requests with 503. Requests in flight continue. */
  beginDraining(): void {
    this.isDraining = true
    this.#server.closeIdleConnections()
  }

  protected async onStart(): Promise<void> {
    const { keys, usesCookies = false, limits, log } = this.#options
    const { tls = null, hostOption } = this.#options
    if (this.#server instanceof TlsServer && tls !== null) {
      this.#certificate = await watchTlsFiles(this.#server, tls, this.#options)
    }
    const isTls = tls !== null
    const listening = await startListening(this.#server, { ...this.#options, isTls })
    this.#server.on('error', (error) => {
      log.warn('AcceptFailed', `a connection could not be accepted: ${error.message}`)
    })
    const { endpoint } = listening
    const { allowedHosts, allowedOrigins: origins } = limits
    const hosts = [...listening.hosts, ...allowedHosts]
    this.#listening = listening
    const named = definedFields({ hostOption })
    const allowed = { hosts, endpoint, origins, ...named }
    this.#guard = new RequestGuard({ ...limits, keys, usesCookies, ...allowed })
  }

  protected async onStop(): Promise<void> {
    const { clock, limits } = this.#options
    this.beginDraining()
    await this.#idleWithin(limits.drainSeconds * 1000)
    for (const exchange of this.#inFlight) exchange.abort('the server is closing')
    await this.#idleWithin(abortedSendMs)
    clock.nextTurn(() => {
      this.#server.closeAllConnections()
      for (const socket of this.#rawConnections) socket.destroy()
    })
    await this.#listening?.close()
    this.#certificate?.close()
  }

  protected override onAbandon(): void {
    this.#certificate?.close()
  }

  /** Adds a TCP connection. Sets no time limit for the TLS handshake, because Node sets one. */
  #addRawConnection(socket: Socket): void {
    const { limits, isBackground } = this.#options
    if (isBackground === true) socket.unref()
    if (this.#rawConnections.size >= 2 * limits.maxConnections) {
      socket.destroy()
      return
    }
    this.#rawConnections.add(socket)
    socket.once('close', () => this.#rawConnections.delete(socket))
  }

  /**
   * At the limit, a new connection replaces an idle one, so that a client with idle connections
   * cannot lock out others. If all others have a complete request in flight, the new one is closed.
   */
  #addConnection(socket: Socket): void {
    const { limits, isBackground } = this.#options
    if (isBackground === true) socket.unref()
    const isFull = this.#connections.size >= limits.maxConnections
    const closed = isFull ? (findReplaceable(this.#connections) ?? socket) : undefined
    // Removes the old connection now, because others may connect before its `close` event.
    if (closed !== undefined) this.#connections.delete(closed)
    const exchanges = new Set<HttpExchange>()
    if (closed !== socket) this.#connections.set(socket, exchanges)
    socket.once('close', () => {
      this.#connections.delete(socket)
      // Older Node versions do not close queued pipelined responses when the client disconnects.
      for (const exchange of exchanges) {
        exchange.abort('client_disconnect')
        this.#forget(exchange)
      }
    })
    closed?.destroy()
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { clock, onEnded } = this.#options
    const startMs = clock.monotonicMs()
    const exchange = new HttpExchange(request, response, this.#exchangeOptions)
    const closed = new Promise<void>((resolve) => response.once('close', () => resolve()))
    this.#inFlight.add(exchange)
    this.#connections.get(request.socket)?.add(exchange)
    response.once('close', () => {
      this.#forget(exchange)
      exchange.key?.ended(exchange.status)
    })
    try {
      await this.#answer(exchange)
    } catch (error) {
      if (!exchange.isGone) exchange.sendError(error)
    }
    await closed
    onEnded?.(exchange, (clock.monotonicMs() - startMs) / 1000)
  }

  async #answer(exchange: HttpExchange): Promise<void> {
    const { request } = exchange
    const guard = this.#guard
    if (guard === null) throw closingError()
    const { routes, path } = this.#findRoutes(exchange.path)
    const isPublic = routes.some((route) => route.isPublic === true)
    exchange.addHeaders(guard.corsHeaders(request))
    exchange.key = guard.check(request, isPublic)
    if (isPreflight(request)) return exchange.sendNothing(preflightHeaders(request))
    if (routes.length === 0) throw this.#toUnknownPath(path)
    exchange.route = routes[0]?.path ?? ''
    const route = expectMethod(routes, request.method)
    if (this.isDraining && route.isPublic !== true) throw closingError()
    const rest = route.path.endsWith('*') ? path.slice(route.path.length - 1) : ''
    if (route.bodyBytes === undefined) return route.answer(exchange, undefined, rest)
    admit(exchange)
    checkBodyHead(request, route.bodyBytes, route.isAnyTypeAccepted === true)
    if (request.headers.expect !== undefined) exchange.response.writeContinue()
    const bytes = await readBody(request, route.bodyBytes, exchange.signal)
    exchange.body = parseJson(bytes, this.#options.limits.depth)
    return route.answer(exchange, exchange.body, rest)
  }

  /** The paths under which a requested path is looked up, in this order. */
  protected listAliases(path: string): readonly string[] {
    return [path]
  }

  /** Returns the routes of a path; none if the server does not have the path. */
  #findRoutes(requested: string): { readonly routes: readonly Route[]; readonly path: string } {
    for (const path of this.listAliases(requested)) {
      const routes = this.#routesOf(path)
      if (routes.length > 0) return { routes, path }
    }
    return { routes: [], path: requested }
  }

  #routesOf(path: string): readonly Route[] {
    const exact = this.#routes.get(path)
    if (exact !== undefined) return exact
    for (const [pattern, routes] of this.#routes) {
      const isPrefix = pattern.endsWith('*') && path.startsWith(pattern.slice(0, -1))
      if (isPrefix && path.length >= pattern.length) return routes
    }
    return []
  }

  #isAnswering(socket: Duplex): boolean {
    const exchanges = this.#connections.get(socket) ?? new Set()
    return [...exchanges].some(({ response }) => response.headersSent)
  }

  #forget(exchange: HttpExchange): void {
    this.#inFlight.delete(exchange)
    const { socket } = exchange.request
    const exchanges = this.#connections.get(socket)
    exchanges?.delete(exchange)
    // Keeps the map in the order in which the connections were last used.
    if (this.#connections.delete(socket)) this.#connections.set(socket, exchanges ?? new Set())
    if (!this.isDraining) return
    this.#options.clock.nextTurn(() => this.#server.closeIdleConnections())
    if (this.#inFlight.size === 0) this.#onIdle?.()
  }

  async #idleWithin(ms: number): Promise<void> {
    if (this.#inFlight.size === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    await boundedWait(this.#options.clock, ms, promise).catch(() => {})
  }
}

/**
 * Counts a request against the limits of its key. A request that is answered with 429 does not
 * count.
 */
function admit(exchange: HttpExchange): void {
  const admission = exchange.key?.admit()
  if (admission === undefined) return
  exchange.addHeaders(admission.headers)
  exchange.response.once('close', () => {
    if (exchange.status === 429) admission.giveBack()
  })
}

export const notFoundError = (advice: string): HttpError =>
  new HttpError(404, `There is nothing at this address. ${advice}`, { code: 'unknown_url' })

function expectMethod(routes: readonly Route[], given = ''): Route {
  const wanted = given === 'HEAD' ? 'GET' : given
  const found = routes.find(({ method }) => method === wanted)
  if (found !== undefined) return found
  const allowed = routes.flatMap(({ method }) => (method === 'GET' ? ['GET', 'HEAD'] : [method]))
  const allow = allowed.join(', ')
  throw new HttpError(405, `This address takes ${allow} only.`, {
    code: 'method_not_allowed',
    headers: ['allow', allow],
  })
}

const closingError = (): HttpError =>
  new HttpError(503, 'The server is closing.', { code: 'closing', headers: ['retry-after', '5'] })

/** Node's events for a request: plain, with `Expect: 100-continue`, with another expectation. */
const requestEvents = ['request', 'checkContinue', 'checkExpectation'] as const

/** `isAnswering` returns whether a response is being sent. An error must not be written into it. */
function createLimitedServer(
  { limits, clock, errors, tls = null }: HttpServerOptions,
  isAnswering: (socket: Duplex) => boolean,
): Server | TlsServer {
  const own = {
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    connectionsCheckingInterval: limits.connectionsCheckMs,
    keepAliveTimeout: limits.keepAliveMs,
    maxHeaderSize: limits.headerBytes,
    // Disabled, because the request guard sends an error with an explanation.
    requireHostHeader: false,
  }
  const server =
    tls === null
      ? createServer(own)
      : createTlsServer({ ...own, handshakeTimeout: limits.headersTimeoutMs })
  server.maxRequestsPerSocket = limits.maxRequestsPerSocket
  // One more than allowed, so that the guard sees the excess. Node drops further headers silently.
  server.maxHeadersCount = limits.headerCount + 1
  const sendAndClose = (socket: Duplex, error: HttpError): void => {
    // Node repeats the event while the client still sends.
    if (!socket.writableEnded)
      sendRawError(socket, error, JSON.stringify(errors.toBody(error, '', {})), clock)
  }
  server.on('clientError', (error, socket) => {
    const errno = errnoOf(error)
    if (errno === 'ECONNRESET' || isAnswering(socket)) socket.destroy()
    else sendAndClose(socket, clientErrors[errno] ?? malformed)
  })
  server.on('connect', (_, socket) => sendAndClose(socket, noTunnels))
  return server
}

const malformed = new HttpError(400, 'This is not a well-formed HTTP request.', {
  code: 'bad_request',
})
const noTunnels = new HttpError(501, 'CONNECT is not supported.', { code: 'not_implemented' })

const clientErrors: Readonly<Record<string, HttpError>> = {
  HPE_HEADER_OVERFLOW: new HttpError(431, 'The headers are too large.', {
    code: 'headers_too_large',
  }),
  ERR_HTTP_REQUEST_TIMEOUT: new HttpError(408, 'The request did not arrive in time.', {
    code: 'request_timeout',
  }),
}

function sendRawError(socket: Duplex, { status }: HttpError, body: string, clock: Clock): void {
  const headers = [...securityHeaders, 'content-type', 'application/json', 'connection', 'close']
  headers.push('x-request-id', `req_${newUuid()}`, 'content-length', String(body.length))
  const lines = [`HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ''}`]
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`)
  socket.on('error', () => {})
  const cancel = clock.after(lingerMs, () => socket.destroy(), { background: true })
  socket.once('close', cancel)
  socket.once('end', () => socket.destroy())
  socket.resume()
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
}

/** Returns an idle connection, or else one without a complete request. */
function findReplaceable(
  connections: ReadonlyMap<Duplex, ReadonlySet<HttpExchange>>,
): Duplex | undefined {
  let unfinished: Duplex | undefined
  for (const [socket, exchanges] of connections) {
    if (exchanges.size === 0) return socket
    const hasCompleteRequest = [...exchanges].some(({ request }) => request.complete)
    if (!hasCompleteRequest) unfinished ??= socket
  }
  return unfinished
}
