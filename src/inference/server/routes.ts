/** Every route of the server: generation, health, models, tokens, metrics and OpenAPI. */

import { maskSecrets } from '../../foundation/secrets.ts'
import { createGenerationRoutes, type GenerationContext } from './generation-routes.ts'
import { machineName } from './listening.ts'
import { createOpenApiDocument } from './openapi.ts'
import { unknownModel } from './requests/invalid-request.ts'
import type { Route } from './router.ts'

/** What the routes work with. */
export interface RouteContext extends GenerationContext {
  readonly batchConfig: { readonly maxBatchSize: number; readonly maxBatchWaitMs: number }
  readonly metrics: () => Promise<string> | string
  /** The server's own address. */
  readonly endpoint: string
  /** Whether routes that are not open need an API key. */
  readonly needsKey: boolean
  /** Why requests are refused; `null` when they are accepted. */
  readonly unready: () => string | null
}

/** All routes. None of them creates tasks, runs programs or reads files. */
export function createRoutes(context: RouteContext): readonly Route[] {
  const routes: Route[] = [
    ...createHealthRoutes(context),
    ...createGenerationRoutes(context),
    ...createModelRoutes(context),
    createTokenizeRoute(context),
    createMetricsRoute(context),
  ]
  routes.push(createOpenApiRoute(context, routes))
  return routes
}

/** The document is made at the first request: most servers are never asked for it. */
function createOpenApiRoute(context: RouteContext, routes: readonly Route[]): Route {
  const { endpoint, needsKey, requests } = context
  let document: object | undefined
  return {
    method: 'GET',
    path: '/openapi.json',
    document: { summary: 'This document.' },
    answer(exchange) {
      document ??= createOpenApiDocument({ routes, schemas: requests.schemas, endpoint, needsKey })
      exchange.sendJson(200, document)
    },
  }
}

function createHealthRoutes(context: RouteContext): readonly Route[] {
  const { generator, endpoint, batchConfig } = context
  return [
    {
      method: 'GET',
      path: '/health',
      document: { summary: 'Health and batching.', ok: 'Health', failure: 'Health' },
      isOpen: true,
      answer(exchange) {
        const reason = reasonOf(context)
        exchange.sendJson(reason === null ? 200 : 503, {
          status: reason === null ? 'healthy' : 'unhealthy',
          ...(reason === null ? {} : { reason }),
          hostname: machineName,
          initialized: generator.status().unready === null,
          endpoint,
          mode: 'service',
          batch_config: {
            max_batch_size: batchConfig.maxBatchSize,
            max_batch_wait_ms: batchConfig.maxBatchWaitMs,
            pending_requests: generator.status().queued,
          },
        })
      },
    },
    {
      method: 'GET',
      path: '/health/live',
      document: { summary: 'Whether the process runs.', ok: 'Status' },
      isOpen: true,
      answer: (exchange) => exchange.sendJson(200, { status: 'alive' }),
    },
    {
      method: 'GET',
      path: '/health/ready',
      document: { summary: 'Whether requests are accepted.', ok: 'Status', failure: 'Status' },
      isOpen: true,
      answer(exchange) {
        const reason = reasonOf(context)
        if (reason === null) exchange.sendJson(200, { status: 'ready' })
        else exchange.sendJson(503, { status: 'unready', reason })
      },
    },
  ]
}

/** The reason without the engine's message: no key is needed, and it may hold paths. */
function reasonOf({ generator, unready }: RouteContext): string | null {
  const reason = unready() ?? generator.status().unready
  return reason === null ? null : maskSecrets(reason.split(':', 1)[0] ?? '')
}

function createModelRoutes({ requests, clock }: RouteContext): readonly Route[] {
  const { models } = requests.rules
  const created = Math.floor(clock.now())
  const describe = (id: string): object => ({ id, object: 'model', created, owned_by: 'tutti' })
  return [
    {
      method: 'GET',
      path: '/v1/models',
      document: { summary: 'The served models.', ok: 'ModelList' },
      answer: (exchange) => exchange.sendJson(200, { object: 'list', data: models.map(describe) }),
    },
    {
      method: 'GET',
      path: '/v1/models/:rest{.+}',
      document: { summary: 'One served model.', ok: 'Model' },
      answer(exchange, _, rest) {
        const id = decoded(rest)
        if (!models.includes(id)) throw unknownModel(id, models)
        exchange.sendJson(200, describe(id))
      },
    },
  ]
}

function decoded(part: string): string {
  try {
    return decodeURIComponent(part)
  } catch {
    return part
  }
}

function createTokenizeRoute({ generator, limits, requests }: RouteContext): Route {
  return {
    method: 'POST',
    path: '/tokenize',
    document: { summary: 'The tokens of a text.', body: 'TokenizeRequest', ok: 'Tokens' },
    bodyBytes: limits.bodyBytes,
    async answer(exchange, body) {
      const tokens = await generator.tokenize(requests.readTokenize(body))
      exchange.sendJson(200, { tokens, count: tokens.length })
    },
  }
}

function createMetricsRoute({ metrics }: RouteContext): Route {
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
