/** The HTTP server of an inference backend: sockets, their limits, and graceful shutdown. */

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { boundedWait } from '../../foundation/promises.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { registerSecret } from '../../foundation/secrets.ts'
import { Service } from '../../foundation/service.ts'
import type { BatchPolicy } from '../generation/batch-policy.ts'
import type { ModelFacts, SupportedFields } from '../generation/inference-engine.ts'
import type { TextGenerator } from '../generation/text-generator.ts'
import { checkBodyHead, parseJson, readBody } from './requests/body.ts'
import { HttpExchange, type HttpExchangeParts } from './http-exchange.ts'
import { isPreflight, preflightHeaders, RequestGuard } from './request-guard.ts'
import {
  createHealthRoutes,
  createRoutes,
  generatePath,
  type HealthContext,
  refuseGenerate,
  type RouteContext,
} from './routes.ts'
import { HttpError } from './http-error.ts'
import { expectReachable, type Listening, openListening } from './listening.ts'
import { createLimitedServer } from './limited-server.ts'
import { createRequestReader } from './requests/request-reader.ts'
import { expectMatch, Router } from './router.ts'
import { resolveServerLimits, type ServerLimits } from './server-limits.ts'

export interface InferenceServerOptions {
  readonly generator: TextGenerator
  /** The names of the served model; requests that name no model get the first. */
  readonly models: readonly string[]
  /** Names that are accepted but not listed, such as a path. */
  readonly hiddenModels?: readonly string[]
  /** The maximum of prompt and answer tokens together; `null` until `modelLoaded` sets it. */
  readonly contextLength: number | null
  /** The fields that the engine supports besides the basic ones; `modelLoaded` replaces them. */
  readonly fields?: SupportedFields
  /** `null`: loopback, and the loopback address that this machine's name resolves to. */
  readonly host: string | null
  /** 0 chooses a free port. */
  readonly port: number
  /** Required on every route except `/health`, and for listening on a host other than loopback. */
  readonly apiKey: string | null
  readonly batchConfig: Pick<BatchPolicy, 'type' | 'maxBatchSize' | 'maxBatchWaitMs'>
  /** The limit of the queue: a request with more prompts could never be accepted. */
  readonly queueLimit?: number
  readonly limits?: Partial<ServerLimits>
  /** The body of `/metrics`. */
  readonly metrics: () => Promise<string> | string
  /** Used for values that a request leaves out. */
  readonly defaults: { readonly maxTokens: number }
  readonly clock: Clock
  readonly log: Log
}

/** The facts of the served model. */
type LoadedModel = Pick<ModelFacts, 'contextLength' | 'fields' | 'paths'>

/** How long responses may take to be sent after their requests were aborted. */
const abortedSendMs = 1000

/**
 * Serves a generator over HTTP between `start()` and `stop()`. Stopping lets the requests in flight
 * finish for `limits.drainSeconds`, then aborts the rest; no socket is left when it resolves.
 */
export class InferenceServer extends Service {
  readonly #options: InferenceServerOptions
  readonly #limits: ServerLimits
  readonly #server: Server
  readonly #exchangeParts: HttpExchangeParts
  readonly #inFlight = new Set<HttpExchange>()
  #listening: Listening | null = null
  #guard: RequestGuard | null = null
  #router: Router | null = null
  #isLoading: boolean
  #isDraining = false
  /** Advice in the error for an unknown path. */
  #pathAdvice = ownPaths
  #onIdle: (() => void) | undefined

  constructor(options: InferenceServerOptions) {
    super()
    expectReachable(options)
    const limits = resolveServerLimits(options.limits)
    this.#options = options
    this.#limits = limits
    this.#isLoading = options.contextLength === null
    this.#exchangeParts = {
      clock: options.clock,
      log: options.log,
      isClosing: () => this.#isDraining,
      slowReaderSeconds: limits.slowReaderSeconds,
    }
    this.#server = createLimitedServer(limits, options.clock, (socket) => this.#isAnswering(socket))
    const handle = (request: IncomingMessage, response: ServerResponse): void => {
      void this.#handle(request, response)
    }
    this.#server.on('request', handle)
    this.#server.on('checkContinue', handle)
    this.#server.on('checkExpectation', handle)
    this.#server.on('connection', (socket) => {
      socket.once('close', () => this.#abandon(socket))
    })
    if (options.apiKey !== null) registerSecret(options.apiKey)
  }

  /** `http://host:port`; empty before the server has started. */
  get endpoint(): string {
    return this.#listening?.endpoint ?? ''
  }

  /**
   * Requests are served from now on. Before, `/health` is answered, and all other requests get 503.
   */
  modelLoaded(model: LoadedModel): void {
    this.#isLoading = false
    const passing = model.fields === 'all' ? addPath : passingEngines
    this.#pathAdvice = `${ownPaths} ${passing}`
    this.#router = new Router(createRoutes(this.#routeContext(model)))
  }

  /** New requests get 503 from now on; requests in flight continue. */
  beginDraining(): void {
    this.#isDraining = true
    this.#server.closeIdleConnections()
  }

  /** Aborts the requests in flight: each gets an error that says that the server is closing. */
  abortRest(): void {
    for (const exchange of this.#inFlight) exchange.abort('the server is closing')
  }

  protected async onStart(): Promise<void> {
    const { apiKey, contextLength, fields = [], clock, log } = this.#options
    const listening = await openListening(this.#server, this.#options, clock)
    this.#server.on('error', (error) => {
      log.warn('AcceptFailed', `a connection could not be accepted: ${error.message}`)
    })
    const { endpoint } = listening
    const { allowedHosts, allowedOrigins: origins, urlLength, headerCount } = this.#limits
    const hosts = [...listening.hosts, ...allowedHosts]
    const names = { hosts, endpoint, origins }
    this.#listening = listening
    this.#guard = new RequestGuard({ apiKey, ...names, urlLength, headerCount })
    if (contextLength !== null) this.modelLoaded({ contextLength, fields })
    else this.#router = new Router(createHealthRoutes(this.#healthContext()))
  }

  protected async onStop(): Promise<void> {
    const { clock } = this.#options
    this.beginDraining()
    await this.#idleWithin(this.#limits.drainSeconds * 1000)
    this.abortRest()
    await this.#idleWithin(abortedSendMs)
    clock.nextTurn(() => this.#server.closeAllConnections())
    await this.#listening?.close()
  }

  async #handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const exchange = new HttpExchange(request, response, this.#exchangeParts)
    this.#inFlight.add(exchange)
    response.once('close', () => this.#forget(exchange))
    try {
      await this.#answer(exchange)
    } catch (error) {
      if (exchange.isGone) return
      const problem = exchange.explain(error)
      if (exchange.path === generatePath) refuseGenerate(exchange, problem)
      else exchange.refuse(problem)
    }
  }

  async #answer(exchange: HttpExchange): Promise<void> {
    const { request } = exchange
    const [guard, router] = [this.#guard, this.#router]
    if (guard === null || router === null) throw closing()
    const match = router.find(exchange.path)
    exchange.addHeaders(guard.corsHeaders(request))
    guard.check(request, match?.route.isOpen === true)
    if (isPreflight(request)) return exchange.sendNothing(preflightHeaders(request))
    if (match === undefined && this.#isLoading) throw loading()
    const { route, rest } = expectMatch(match, request.method ?? '', this.#pathAdvice)
    if (this.#isDraining && route.isOpen !== true) throw closing()
    if (route.bodyBytes === undefined) return route.answer(exchange, undefined, rest)
    checkBodyHead(request, route.bodyBytes)
    if (request.headers.expect !== undefined) exchange.response.writeContinue()
    const bytes = await readBody(request, route.bodyBytes, exchange.signal)
    return route.answer(exchange, parseJson(bytes, this.#limits.depth), rest)
  }

  /**
   * Called when the client disconnects: older Node versions do not close queued pipelined
   * responses.
   */
  #abandon(socket: Socket): void {
    for (const exchange of this.#inFlight) {
      if (exchange.request.socket !== socket) continue
      exchange.abort('client_disconnect')
      this.#forget(exchange)
    }
  }

  #isAnswering(socket: Duplex): boolean {
    for (const { request, response } of this.#inFlight) {
      if (request.socket === socket && response.headersSent) return true
    }
    return false
  }

  #forget(exchange: HttpExchange): void {
    this.#inFlight.delete(exchange)
    if (!this.#isDraining) return
    this.#options.clock.nextTurn(() => this.#server.closeIdleConnections())
    if (this.#inFlight.size === 0) this.#onIdle?.()
  }

  /** Resolves when no request is in flight, or after `ms`. */
  async #idleWithin(ms: number): Promise<void> {
    if (this.#inFlight.size === 0) return
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#onIdle = resolve
    await boundedWait(this.#options.clock, ms, promise).catch(() => {})
  }

  #healthContext(): HealthContext {
    const { generator, batchConfig } = this.#options
    return {
      generator,
      batchConfig,
      endpoint: this.endpoint,
      unready: () => (this.#isDraining ? 'the server is closing' : null),
    }
  }

  #routeContext({ contextLength, fields = [], paths = [] }: LoadedModel): RouteContext {
    const { clock, models, hiddenModels = [], metrics, queueLimit = Infinity } = this.#options
    return {
      ...this.#healthContext(),
      clock,
      limits: this.#limits,
      requests: createRequestReader({
        models,
        hiddenModels,
        contextLength,
        maxPrompts: Math.min(this.#limits.maxPrompts, queueLimit),
        promptLimitName:
          queueLimit < this.#limits.maxPrompts ? 'hardware.queue_limit' : 'limits.maxPrompts',
        takesTokens: fields.includes('prompt.tokens'),
        defaultMaxTokens: this.#options.defaults.maxTokens,
        fields,
        isStrict: this.#limits.isStrict,
      }),
      paths,
      metrics,
      needsKey: this.#options.apiKey !== null,
    }
  }
}

const ownPaths = 'GET /openapi.json lists the addresses of this server.'
const addPath = "'engine.paths' of its configuration adds those of the server behind it."
const passingEngines =
  "Others, such as '/v1/embeddings', are there only with the engines 'openai' and 'process'."

const closing = (): HttpError =>
  new HttpError(503, 'The server is closing.', { code: 'closing', headers: ['retry-after', '5'] })

const loading = (): HttpError =>
  new HttpError(503, 'The model is loading.', { code: 'not_ready', headers: ['retry-after', '5'] })
