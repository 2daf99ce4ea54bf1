/** The HTTP server of an inference backend, with the routes for its model. */

import type { Clock } from '../../foundation/clock.ts'
import { tryRead } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { HttpError } from '../../runtime/http/http-error.ts'
import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import { HttpServer } from '../../runtime/http/http-server.ts'
import type { TlsFiles } from '../../runtime/http/tls.ts'
import type { ModelFacts } from '../generation/inference-engine.ts'
import type { EngineProxy } from '../generation/pass-through.ts'
import { createErrorReplies } from './error-replies.ts'
import { ApiKeys } from './keys/api-keys.ts'
import type { ClientKey } from './keys/client-key.ts'
import {
  createDispatchRoute,
  type DispatchParts,
  type LeasedModel,
  type ModelDirectory,
  type ModelRoutes,
} from './model-directory.ts'
import type { KnownFacts, ServedModel } from './served-model.ts'
import { createRequestReader } from './requests/request-reader.ts'
import {
  createStartRoutes,
  createRoutes,
  type HealthContext,
  type RouteContext,
  type ServerParts,
} from './routes.ts'
import { resolveServerLimits, type ServerLimits } from './server-limits.ts'
import { ResponseStore } from './surfaces/response-store.ts'
import { unknownPathError } from './unknown-path.ts'

export interface InferenceServerOptions extends ServerParts {
  /** The names of the served model. The first is the default. */
  readonly models: readonly string[]
  /** Other names that requests may use, such as a path. `/v1/models` does not list them. */
  readonly hiddenModels?: readonly string[]
  /**
   * The host to listen on; `null` for 127.0.0.1 and the loopback address that this machine's name
   * resolves to.
   */
  readonly host: string | null
  readonly port: number
  /** An API key without a name. If neither this nor `apiKeysFile` is set, no key is needed. */
  readonly apiKey: string | null
  /** A file with the names, keys and limits of further clients. */
  readonly apiKeysFile?: string | null
  readonly basePath?: string
  readonly tls?: TlsFiles | null
  /** Called when a request has ended. */
  readonly onRequest?: ((request: ServedRequest) => void) | null
  /** The file of the chat page at `/`. Default none. */
  readonly pageFile?: string | null
  /**
   * The maximum number of queued requests. A request with more prompts is refused, because it could
   * never be queued.
   */
  readonly queueLimit?: number
  readonly limits?: Partial<ServerLimits>
  readonly defaults: { readonly maxTokens: number }
  readonly log: Log
}

/** A request that has ended, as reported to `onRequest`. */
export interface ServedRequest {
  /** The time at which the request arrived, in seconds since the epoch. */
  readonly time: number
  /** The header `x-request-id` of its response. */
  readonly requestId: string
  /** The name of its API key; `null` for a key without a name, or without a key. */
  readonly key: string | null
  readonly method: string
  /** The path without the query. */
  readonly path: string
  /** The status of the response; 499 if the client disconnected before there was one. */
  readonly status: number
  readonly seconds: number
  readonly promptTokens: number
  readonly completionTokens: number
  /** The parsed body; `undefined` if none was read. It is content of the client. */
  readonly body: unknown
  /** The generated texts. They are content of the client. */
  readonly answers: readonly string[]
}

export interface LoadedModel extends Pick<ModelFacts, 'contextLength' | 'fields'>, KnownFacts {
  /** Absent or `null` if there is no server behind the engine. */
  readonly proxy?: EngineProxy | null
}

/** One of several models. */
export interface ModelParts extends Pick<
  InferenceServerOptions,
  'generator' | 'models' | 'hiddenModels' | 'defaults'
> {
  /** Identifies the model: the same object for all of its requests. */
  readonly id: object
  readonly loaded: LoadedModel
}

/** One of several models, which stays loaded until `release` is called. */
export interface RoutedModel extends ModelParts {
  release(): void
}

export class InferenceServer extends HttpServer {
  readonly #options: InferenceServerOptions
  readonly #limits: ServerLimits
  readonly #keys: ApiKeys | null
  readonly #responses = new ResponseStore()

  constructor(options: InferenceServerOptions) {
    const { apiKey, apiKeysFile = null, onRequest = null, clock, log } = options
    const limits = resolveServerLimits(options.limits)
    const needsKey = apiKey !== null || apiKeysFile !== null
    const keys = needsKey ? new ApiKeys({ apiKey, file: apiKeysFile, clock, log }) : null
    const onEnded = (exchange: HttpExchange, seconds: number): void => {
      if (onRequest !== null) tryRead(() => onRequest(toServedRequest(exchange, seconds, clock)))
    }
    super({ ...options, keys, limits, errors: createErrorReplies(log), onEnded })
    this.#options = options
    this.#limits = limits
    this.#keys = keys
  }

  /** The keys of clients; empty if no key is needed. */
  listKeys(): readonly ClientKey[] {
    return this.#keys?.list() ?? []
  }

  /**
   * Begins to serve requests. Requests before this call get 503, except those for `/health` and for
   * the page.
   */
  modelLoaded(model: LoadedModel): void {
    const isPassedOn = model.proxy !== undefined && model.proxy !== null
    const { basePath } = this.#options
    const routes = createRoutes(this.#routeContext(model))
    this.setRoutes(routes, (path) => unknownPathError(path, { basePath, isPassedOn }))
  }

  /** Begins to serve several models. A request is answered by the routes of its model. */
  modelsReady(directory: ModelDirectory<RoutedModel, ModelParts>): void {
    const { clock, basePath } = this.#options
    const listModels = (): readonly ServedModel[] => directory.list()
    const routesById = new WeakMap<object, ModelRoutes>()
    const toRoutes = (model: ModelParts): ModelRoutes => {
      let routes = routesById.get(model.id)
      if (routes === undefined) {
        const context = {
          ...this.#routeContext(model.loaded, { ...this.#options, ...model }),
          listModels,
        }
        routes = new Map(createRoutes(context).map((route) => [route.path, route]))
        routesById.set(model.id, routes)
      }
      return routes
    }
    const toLeased = (model: RoutedModel): LeasedModel => {
      return { routes: toRoutes(model), release: () => model.release() }
    }
    const isPassedOn = directory.paths.length > 0
    const parts: DispatchParts = {
      clock,
      directory: {
        paths: directory.paths,
        list: listModels,
        acquire(name, options) {
          const model = directory.acquire(name, options)
          return model instanceof Promise ? model.then(toLeased) : toLeased(model)
        },
        expect(name) {
          const expected = directory.expect(name)
          return expected === null ? null : toRoutes(expected)
        },
      },
    }
    const [first] = listModels()
    const fields = ['embeddings', 'prompt.tokens']
    const template = { contextLength: first?.contextLength ?? 1, fields }
    const { paths: forwardedPaths } = directory
    const context = { ...this.#routeContext(template), listModels, forwardedPaths }
    const routes = createRoutes(context).map((route) =>
      route.needsModel === false || route.bodyBytes === undefined
        ? route
        : createDispatchRoute(route, parts),
    )
    this.setRoutes(routes, (path) => unknownPathError(path, { basePath, isPassedOn }))
  }

  protected override async onStart(): Promise<void> {
    await this.#keys?.open()
    await super.onStart()
    this.setRoutes(createStartRoutes(this.#healthContext()), () => loadingError)
  }

  protected override async onStop(): Promise<void> {
    this.#keys?.close()
    await super.onStop()
  }

  protected override onAbandon(): void {
    this.#keys?.close()
    super.onAbandon()
  }

  /** Other spellings of a path: some clients add a slash at the end, and some omit `/v1`. */
  protected override listAliases(path: string): readonly string[] {
    const plain = path.length > 1 && path.endsWith('/') ? path.slice(0, -1) : path
    return [plain, `/v1${plain}`]
  }

  #healthContext(): HealthContext {
    const getUnreadyReason = (): string | null => (this.isDraining ? 'the server is closing' : null)
    const { pageFile = null } = this.#options
    return { ...this.#options, pageFile, endpoint: this.endpoint, getUnreadyReason }
  }

  #routeContext(model: LoadedModel, options = this.#options): RouteContext {
    const { contextLength, purpose = 'chat', fields = [], proxy = null } = model
    const { models, hiddenModels = [], queueLimit = Infinity, defaults } = options
    const { maxPrompts, isStrict } = this.#limits
    const requests = createRequestReader({
      models,
      hiddenModels,
      contextLength,
      maxPrompts: Math.min(maxPrompts, queueLimit),
      promptLimitName: queueLimit < maxPrompts ? 'hardware.queue_limit' : 'limits.maxPrompts',
      acceptsTokenIds: fields.includes('prompt.tokens'),
      purpose,
      defaultMaxTokens: defaults.maxTokens,
      fields,
      isPassedOn: proxy !== null,
      isStrict,
    })
    const needsKey = this.#keys !== null
    const [limits, responses] = [this.#limits, this.#responses]
    const { generator } = options
    const own = { names: models, hiddenNames: hiddenModels, contextLength, isLoaded: true }
    const listModels = (): readonly ServedModel[] => [
      { ...own, leftSeconds: Infinity, memoryBytes: 0, facts: model },
    ]
    const shared = { ...this.#healthContext(), generator, limits, listModels }
    return { ...shared, requests, responses, proxy, needsKey }
  }
}

function toServedRequest(exchange: HttpExchange, seconds: number, clock: Clock): ServedRequest {
  const { requestId, key, request, path, status, promptTokens, completionTokens } = exchange
  return {
    time: clock.now() - seconds,
    requestId,
    key: key?.name ?? null,
    method: request.method ?? '',
    // For a request outside of the base path, reports the requested path.
    path: path || ((request.url ?? '').split('?', 1)[0] ?? ''),
    status,
    seconds,
    promptTokens,
    completionTokens,
    body: exchange.body,
    answers: exchange.answers,
  }
}

const loadingError = new HttpError(503, 'The model is loading.', {
  code: 'not_ready',
  headers: ['retry-after', '5'],
})
