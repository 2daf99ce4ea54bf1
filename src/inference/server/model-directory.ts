/** The models of a server with several models, and the routes that find the model of a request. */

import type { Clock } from '../../foundation/clock.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import type { DocumentedRoute } from './openapi.ts'
import { wrongTypeError } from './requests/invalid-request.ts'
import { expectModel, type ServedModel } from './served-model.ts'
import { toServedName } from './surfaces/ollama-request.ts'
import type { Surface } from './surfaces/surface.ts'
import { findSurface } from './surfaces/surfaces.ts'
import { otherModelError } from './unknown-path.ts'

/** The routes of a model, by path. */
export type ModelRoutes = ReadonlyMap<string, DocumentedRoute>

/** A model that stays loaded until `release` is called. */
export interface LeasedModel {
  readonly routes: ModelRoutes
  release(): void
}

export interface ModelDirectory<Lease, Expected> {
  /** Paths that a model may pass on to the server behind its engine. */
  readonly paths: readonly string[]
  list(): readonly ServedModel[]
  /**
   * Returns the model immediately if it is loaded. `name` is one of its names; `null` for the first
   * model.
   */
  acquire(
    name: string | null,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number | null },
  ): Lease | Promise<Lease>
  /**
   * What the model may support at most, which is known before it is loaded. `null` if nothing is
   * known.
   */
  expect(name: string | null): Expected | null
}

export interface DispatchParts {
  readonly directory: ModelDirectory<LeasedModel, ModelRoutes>
  readonly clock: Clock
}

/** The interval of signs of life for a client whose model is loading. */
const signIntervalMs = 5000

/** Answers a request with the route that the model of the request has for the same path. */
export function createDispatchRoute(route: DocumentedRoute, parts: DispatchParts): DocumentedRoute {
  const { directory, clock } = parts
  const { streamType } = route.document
  const surface = findSurface(route.path)
  const findTarget = (routes: ModelRoutes, name: string | null): DocumentedRoute => {
    const target = routes.get(route.path)
    if (target !== undefined) return target
    throw otherModelError(route.path, name ?? directory.list()[0]?.names[0] ?? '')
  }
  return {
    ...route,
    async answer(exchange, body, rest) {
      const fields = isPlainObject(body) ? body : {}
      const { timeout, stream = surface?.isStreamDefault } = fields
      const { name, isLoaded } = findModel(fields['model'], directory.list(), route.path)
      // A request that the model cannot answer must not load it.
      const expected = isLoaded ? null : directory.expect(name)
      if (expected !== null) findTarget(expected, name).check?.(exchange, body)
      const startMs = clock.monotonicMs()
      const acquired = directory.acquire(name, {
        signal: exchange.signal,
        timeoutMs: typeof timeout === 'number' && timeout > 0 ? timeout * 1000 : null,
      })
      const waits = acquired instanceof Promise && streamType !== undefined && stream === true
      const toText = (): string => surface?.toWaitingText?.(fields, clock) ?? loadingComment
      const stopSigns = waits ? sendSigns(exchange, clock, streamType, toText) : null
      try {
        const lease = await acquired
        stopSigns?.()
        exchange.waitedMs = clock.monotonicMs() - startMs
        try {
          await findTarget(lease.routes, name).answer(exchange, body, rest)
        } finally {
          lease.release()
        }
      } catch (error) {
        stopSigns?.()
        if (stopSigns === null) throw error
        endWithError(exchange, error, surface)
      }
    },
  }
}

/** Only clients of Ollama's API add the tag `:latest` to names. */
function findModel(
  given: unknown,
  models: readonly ServedModel[],
  path: string,
): { readonly name: string | null; readonly isLoaded: boolean } {
  if (given === null || given === undefined) {
    return { name: null, isLoaded: models[0]?.isLoaded === true }
  }
  if (typeof given !== 'string') throw wrongTypeError('model', 'a string', given)
  const all = models.flatMap(({ names, hiddenNames }) => [...names, ...hiddenNames])
  const name = path.startsWith('/api/') ? toServedName(given, all) : given
  return { name, isLoaded: expectModel(name, models).isLoaded }
}

const loadingComment = ': the model is loading\n\n'

/** Begins the stream with a sign of life and repeats it, so that no client or proxy gives up. */
function sendSigns(
  exchange: HttpExchange,
  clock: Clock,
  streamType: string,
  toText: () => string,
): () => void {
  const headers = ['content-type', streamType, 'x-accel-buffering', 'no']
  let cancel = (): void => {}
  const send = (): void => {
    if (exchange.isGone) return
    exchange.response.write(toText())
    cancel = clock.after(signIntervalMs, send, { background: true })
  }
  exchange.writeHead(200, headers)
  send()
  return () => cancel()
}

/** Sends an error and ends the stream, which has only signs of life so far. */
function endWithError(exchange: HttpExchange, thrown: unknown, surface: Surface | undefined): void {
  const error = exchange.toHttpError(thrown)
  const body = exchange.errorBody(error)
  if (exchange.isGone || exchange.response.writableEnded) return
  const event = `event: error\ndata: ${JSON.stringify(body)}\n\n`
  exchange.response.write(surface?.toFailure(error, body) ?? event)
  exchange.end()
}
