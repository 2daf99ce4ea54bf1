/** Every route of the server: generation, health, models, tokens, metrics and OpenAPI. */

import type { Clock } from '../../foundation/clock.ts'
import { tryRead } from '../../foundation/errors.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { version } from '../../foundation/version.ts'
import type { HttpError } from '../../runtime/http/http-error.ts'
import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import { machineName } from '../../runtime/http/listening.ts'
import type { BatchPolicy } from '../generation/batch-policy.ts'
import type { EngineProxy, WireFields } from '../generation/pass-through.ts'
import type { TextGenerator } from '../generation/text-generator.ts'
import { generatePath } from './error-replies.ts'
import { createPageRoute } from './chat-page.ts'
import { createEmbeddingRoutes } from './embedding-routes.ts'
import { createOpenApiDocument, type DocumentedRoute, type OpenApiOptions } from './openapi.ts'
import {
  createIgnoredHeaders,
  sendForwarded,
  sendStreamedReply,
  sendWholeReply,
  toPromptRequests,
} from './replies/replies.ts'
import { expectModel, type ServedModel } from './served-model.ts'
import type { RequestReader } from './requests/request-reader.ts'
import type { ServerLimits } from './server-limits.ts'
import { isAnthropicClient, toModelInfo, toModelPage } from './surfaces/messages.ts'
import type { ResponseStore } from './surfaces/response-store.ts'
import type { Surface, SurfaceCall } from './surfaces/surface.ts'
import { createTokenRoutes } from './token-routes.ts'
import { unknownPathError } from './unknown-path.ts'
import { createCompanionRoutes, surfaces } from './surfaces/surfaces.ts'

export interface ServerParts {
  readonly generator: TextGenerator
  readonly batchConfig: Pick<BatchPolicy, 'type' | 'maxBatchSize' | 'maxBatchWaitMs'>
  readonly metrics: () => Promise<string> | string
  readonly clock: Clock
  /** Further facts for `GET /v1/server`, which the server itself does not know. */
  readonly facts?: () => object
}

/** The context of the health routes, which also answer while the model loads. */
export interface HealthContext extends ServerParts {
  readonly endpoint: string
  /** The file of the chat page; `null` if none is served. */
  readonly pageFile: string | null
  readonly getUnreadyReason: () => string | null
}

export interface RouteContext extends HealthContext {
  readonly limits: ServerLimits
  readonly requests: RequestReader
  readonly responses: ResponseStore
  readonly proxy: EngineProxy | null
  /** Paths that some, but not all, of several models forward. Default none. */
  readonly forwardedPaths?: readonly string[]
  readonly listModels: () => readonly ServedModel[]
  /** Whether every route except those of `/health` and the page requires a key. */
  readonly needsKey: boolean
}

/** Creates all routes. None of them creates tasks or runs programs. */
export function createRoutes(context: RouteContext): readonly DocumentedRoute[] {
  const paths = context.proxy?.paths ?? []
  const routes: DocumentedRoute[] = [
    ...createStartRoutes(context),
    ...surfaces.map((surface) => createSurfaceRoute(surface, context)),
    ...createCompanionRoutes(context),
    ...createEmbeddingRoutes(context),
    createGenerateRoute(context),
    ...createModelRoutes(context),
    ...createTokenRoutes(context),
    createMetricsRoute(context),
    createFactsRoute(context, () => routes),
  ].filter(({ path }) => !paths.includes(path.replace(/\/\*$/, '')))
  const others = context.forwardedPaths ?? []
  const missing = others.filter((one) => !routes.some(({ path }) => path === one))
  routes.push(...[...paths, ...missing].map((path) => createForwardingRoute(path, context)))
  routes.push(createOpenApiRoute(context, routes))
  return routes
}

/** Creates the document at its first request, because most servers never need it. */
function createOpenApiRoute(
  context: RouteContext,
  routes: readonly DocumentedRoute[],
): DocumentedRoute {
  const { endpoint, needsKey, requests } = context
  const surfaceSchemas = surfaces.map((surface) => surface.schemas ?? {})
  const schemas = Object.assign({}, ...surfaceSchemas, requests.schemas) as Schemas
  let document: object | undefined
  return {
    method: 'GET',
    path: '/openapi.json',
    document: { summary: 'This document.' },
    answer(exchange) {
      document ??= createOpenApiDocument({ routes, schemas, endpoint, needsKey })
      exchange.sendJson(200, document)
    },
  }
}

type Schemas = OpenApiOptions['schemas']

/** The routes that exist before the model is loaded: health and the page. */
export function createStartRoutes(context: HealthContext): readonly DocumentedRoute[] {
  const { pageFile } = context
  return [...createHealthRoutes(context), ...(pageFile === null ? [] : [createPageRoute(pageFile)])]
}

function createHealthRoutes(context: HealthContext): readonly DocumentedRoute[] {
  const { generator, endpoint, batchConfig } = context
  return [
    {
      method: 'GET',
      path: '/health',
      document: { summary: 'Health and batching.', ok: 'Health', failure: 'Health' },
      isPublic: true,
      answer(exchange) {
        const reason = getPublicReason(context)
        exchange.sendJson(reason === null ? 200 : 503, {
          status: reason === null ? 'healthy' : 'unhealthy',
          ...(reason === null ? {} : { reason }),
          hostname: machineName,
          initialized: generator.status().unreadyReason === null,
          endpoint,
          mode: 'service',
          batch_config: {
            ...toBatchFields(batchConfig),
            pending_requests: generator.status().queued,
          },
        })
      },
    },
    {
      method: 'GET',
      path: '/health/live',
      document: { summary: 'Whether the process runs.', ok: 'Status' },
      isPublic: true,
      answer: (exchange) => exchange.sendJson(200, { status: 'alive' }),
    },
    {
      method: 'GET',
      path: '/health/ready',
      document: { summary: 'Whether requests are accepted.', ok: 'Status', failure: 'Status' },
      isPublic: true,
      answer(exchange) {
        const reason = getPublicReason(context)
        if (reason === null) exchange.sendJson(200, { status: 'ready' })
        else exchange.sendJson(503, { status: 'unready', reason })
      },
    },
  ]
}

const toBatchFields = (config: ServerParts['batchConfig']): object => ({
  type: config.type,
  max_batch_size: config.maxBatchSize,
  max_batch_wait_ms: config.maxBatchWaitMs,
})

/** Omits the message of the engine: it may contain paths, and the route requires no key. */
function getPublicReason({ generator, getUnreadyReason }: HealthContext): string | null {
  const reason = getUnreadyReason() ?? generator.status().unreadyReason
  return reason === null ? null : maskSecrets(reason.split(':', 1)[0] ?? '')
}

/** The facts that operators and clients ask for, as with `GET /props` of llama-server. */
function createFactsRoute(
  context: RouteContext,
  listRoutes: () => readonly DocumentedRoute[],
): DocumentedRoute {
  const { generator, endpoint, requests, batchConfig, clock, facts, listModels } = context
  const startMs = clock.monotonicMs()
  return {
    method: 'GET',
    path: '/v1/server',
    document: { summary: 'The version, model, settings and load of the server.', ok: 'Server' },
    answer(exchange) {
      const { contextLength } = requests.rules
      const models = listModels().flatMap(({ names }) => names)
      const { queued, running, workers } = generator.status()
      exchange.sendJson(200, {
        version,
        hostname: machineName,
        endpoint,
        uptime_seconds: (clock.monotonicMs() - startMs) / 1000,
        models,
        max_model_len: contextLength,
        workers,
        requests: { queued, running },
        batch_config: toBatchFields(batchConfig),
        ...facts?.(),
        routes: listRoutes().map(({ method, path }) => `${method} ${path}`),
      })
    },
  }
}

type ModelFields = { readonly id: string } & WireFields

function createModelRoutes({ listModels, clock }: RouteContext): readonly DocumentedRoute[] {
  const created = Math.floor(clock.now())
  const describe = (id: string, model: ServedModel): ModelFields => {
    const { isLoaded, contextLength } = model
    const fields = { id, object: 'model', created, owned_by: 'tutti' }
    return { ...fields, loaded: isLoaded, max_model_len: contextLength }
  }
  const describeOther = (id: string, { contextLength }: ServedModel): ModelFields =>
    toModelInfo(id, created, contextLength)
  return [
    {
      method: 'GET',
      path: '/v1/models',
      document: { summary: 'The served models.', ok: 'ModelList' },
      answer(exchange) {
        const isOther = isAnthropicClient(exchange.request.headers)
        const toFields = isOther ? describeOther : describe
        const data = listModels().flatMap((model) => model.names.map((id) => toFields(id, model)))
        exchange.sendJson(200, isOther ? toModelPage(data) : { object: 'list', data })
      },
    },
    {
      method: 'GET',
      path: '/v1/models/*',
      document: { summary: 'One served model.', ok: 'Model' },
      answer(exchange, _, rest) {
        const id = tryRead(() => decodeURIComponent(rest)) ?? rest
        const model = expectModel(id, listModels())
        const isOther = isAnthropicClient(exchange.request.headers)
        exchange.sendJson(200, (isOther ? describeOther : describe)(id, model))
      },
    },
  ]
}

/** Only the model of a body is checked here. The server behind the engine checks the rest. */
function createForwardingRoute(path: string, context: RouteContext): DocumentedRoute {
  const { proxy, limits, requests } = context
  return {
    method: 'POST',
    path,
    document: {
      summary: 'Passed on to the server behind the engine.',
      streamType: 'text/event-stream',
    },
    bodyBytes: limits.chatBodyBytes,
    check: (_, body) => void requests.readForwarded(body),
    async answer(exchange, body) {
      if (proxy === null) throw unknownPathError(path)
      const fields = requests.readForwarded(body)
      const forwarded = await proxy.forward({ path, fields, signal: exchange.signal })
      await sendForwarded(exchange, forwarded)
    },
  }
}

function createMetricsRoute({ metrics }: RouteContext): DocumentedRoute {
  return {
    method: 'GET',
    path: '/metrics',
    document: { summary: 'Metrics in the text format of Prometheus.', isText: true },
    async answer(exchange) {
      const type = 'text/plain; version=0.0.4; charset=utf-8'
      exchange.sendText(200, await metrics(), ['content-type', type])
    },
  }
}

function createSurfaceRoute(surface: Surface, context: RouteContext): DocumentedRoute {
  const { generator, clock, limits } = context
  const { path, document, bodyLimit, isAnyTypeAccepted = false } = surface
  const options = { clock, bufferBytes: limits.streamBufferBytes }
  const read = (exchange: HttpExchange, body: unknown): SurfaceCall =>
    surface.read(body, context, { owner: exchange.key?.name ?? '', loadMs: exchange.waitedMs })
  return {
    method: 'POST',
    path,
    document,
    bodyBytes: limits[bodyLimit],
    isAnyTypeAccepted,
    check: (exchange, body) => void read(exchange, body),
    answer(exchange, body) {
      const call = read(exchange, body)
      if ('reply' in call) return sendReply(exchange, call.reply)
      const { request, format } = call
      if (!request.isStream) return sendWholeReply(generator, exchange, request, format)
      return sendStreamedReply(generator, exchange, request, format, options)
    },
  }
}

/** A stream that has begun while the model was loading gets the reply as its last line. */
function sendReply(exchange: HttpExchange, reply: object): void {
  if (exchange.response.headersSent) exchange.end(`${JSON.stringify(reply)}\n`)
  else exchange.sendJson(200, reply)
}

const createGenerateRoute = (context: RouteContext): DocumentedRoute => ({
  method: 'POST',
  path: generatePath,
  document: {
    summary: 'Answers many prompts.',
    body: 'GenerateRequest',
    ok: 'Generated',
    failure: 'GenerateError',
  },
  bodyBytes: context.limits.bodyBytes,
  check: (_, body) => void context.requests.readGenerate(body),
  answer: (exchange, body) => sendPromptReplies(context, exchange, body),
})

async function sendPromptReplies(
  { generator, clock, requests }: RouteContext,
  exchange: HttpExchange,
  body: unknown,
): Promise<void> {
  const start = clock.monotonicMs()
  const request = requests.readGenerate(body)
  const prompts = toPromptRequests(request, exchange)
  const outcomes = await Promise.allSettled(
    prompts.map(async (prompt) => generator.generate(prompt)),
  )
  if (exchange.isGone) return
  const results = outcomes.map((outcome) =>
    outcome.status === 'fulfilled' ? outcome.value.text : exchange.toHttpError(outcome.reason),
  )
  const failure = commonFailure(results)
  if (failure !== undefined) throw failure
  const seconds = (clock.monotonicMs() - start) / 1000
  const response = {
    status: 'success',
    hostname: machineName,
    results: results.map((result) => {
      if (typeof result === 'string') return result
      return { error: { code: result.code, message: result.message } }
    }),
    num_prompts: results.length,
    total_time: seconds,
    avg_time_per_prompt: results.length === 0 ? 0 : seconds / results.length,
  }
  const ignored = outcomes.flatMap((outcome) =>
    outcome.status === 'fulfilled' ? (outcome.value.ignored ?? []) : [],
  )
  exchange.sendJson(200, response, createIgnoredHeaders(request, ignored))
}

/** Returns an error that all prompts have in common, unless the request caused it. */
function commonFailure(results: readonly (string | HttpError)[]): HttpError | undefined {
  const [first] = results
  if (first === undefined || typeof first === 'string' || first.status < 429) return undefined
  const isCommon = results.every((one) => typeof one !== 'string' && one.code === first.code)
  return isCommon ? first : undefined
}
