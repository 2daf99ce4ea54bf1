/** The models of a server with several models, and the routes that find the model of a request. */

import type { Clock } from '../../foundation/clock.ts'
import { isPlainObject } from '../../foundation/json-value.ts'
import type { HttpError } from '../../runtime/http/http-error.ts'
import type { HttpExchange } from '../../runtime/http/http-exchange.ts'
import type { DocumentedRoute } from './openapi.ts'
import { expectModel, type ServedModel } from './served-model.ts'
import { eventStreamType } from './surfaces/chunk-stream.ts'
import { toServedName } from './surfaces/ollama-request.ts'

/** A model that stays loaded until `release` is called. */
export interface LeasedModel {
  /** The routes of the model, by path. */
  readonly routes: ReadonlyMap<string, DocumentedRoute>
  release(): void
}

export interface ModelDirectory<Lease> {
  list(): readonly ServedModel[]
  /** Returns the model at once if it is loaded. `name` is one of its names. */
  acquire(
    name: string | null,
    options: { readonly signal: AbortSignal; readonly timeoutMs: number | null },
  ): Lease | Promise<Lease>
}

export interface DispatchParts {
  readonly directory: ModelDirectory<LeasedModel>
  readonly clock: Clock
  readonly unknownPath: HttpError
}

/** How often a client whose model is loading gets a comment. */
const commentIntervalMs = 5000

/** Answers a request with the route of the same path that belongs to its model. */
export function createDispatchRoute(route: DocumentedRoute, parts: DispatchParts): DocumentedRoute {
  const { directory, clock, unknownPath } = parts
  const hasStreams = route.document.streamType?.startsWith('text/event-stream') === true
  return {
    ...route,
    async answer(exchange, body, rest) {
      const fields = isPlainObject(body) ? body : {}
      const { timeout } = fields
      const acquired = directory.acquire(findName(fields['model'], directory.list()), {
        signal: exchange.signal,
        timeoutMs: typeof timeout === 'number' && timeout > 0 ? timeout * 1000 : null,
      })
      const waits = acquired instanceof Promise && hasStreams && fields['stream'] === true
      const stopComments = waits ? sendComments(exchange, clock) : null
      try {
        const lease = await acquired
        stopComments?.()
        try {
          const target = lease.routes.get(route.path)
          if (target === undefined) throw unknownPath
          await target.answer(exchange, body, rest)
        } finally {
          lease.release()
        }
      } catch (error) {
        stopComments?.()
        if (stopComments === null) throw error
        sendErrorEvent(exchange, error)
      }
    },
  }
}

function findName(given: unknown, models: readonly ServedModel[]): string | null {
  if (given === null || given === undefined) return null
  const all = models.flatMap(({ names, hiddenNames }) => [...names, ...hiddenNames])
  const name = toServedName(String(given), all)
  expectModel(name, models)
  return name
}

/** Begins the stream with a comment and repeats it, so that no client or proxy gives up. */
function sendComments(exchange: HttpExchange, clock: Clock): () => void {
  const headers = ['content-type', eventStreamType, 'x-accel-buffering', 'no']
  let cancel = (): void => {}
  const send = (): void => {
    if (exchange.isGone) return
    exchange.response.write(': the model is loading\n\n')
    cancel = clock.after(commentIntervalMs, send, { background: true })
  }
  exchange.writeHead(200, headers)
  send()
  return () => cancel()
}

/** Ends a stream that has only comments so far. */
function sendErrorEvent(exchange: HttpExchange, error: unknown): void {
  const body = exchange.errorBody(exchange.toHttpError(error))
  if (exchange.isGone || exchange.response.writableEnded) return
  exchange.response.write(`event: error\ndata: ${JSON.stringify(body)}\n\n`)
  exchange.end()
}
