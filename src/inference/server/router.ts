/** Finds the route of a path; the only file that names the routing library. */

import { RegExpRouter } from 'hono/router/reg-exp-router'
import type { HttpExchange } from './http-exchange.ts'
import { HttpError } from './http-error.ts'
import type { DocumentedRoute } from './openapi.ts'

/**
 * One path of the server. A body is read only if the route has `bodyBytes`, the limit of its size.
 */
export interface Route extends DocumentedRoute {
  readonly bodyBytes?: number
  /** Whether the route replaces the server's own route of the same path. */
  readonly isForwarded?: boolean
  /** `body` is the parsed JSON, `rest` the text that matched `:rest` in the path. */
  answer(exchange: HttpExchange, body: unknown, rest: string): Promise<void> | void
}

export interface RouteMatch {
  readonly route: Route
  readonly rest: string
}

/** Matches paths literally: nothing is decoded, merged or resolved. */
export class Router {
  readonly #router = new RegExpRouter<Route>()

  constructor(routes: readonly Route[]) {
    for (const route of routes) this.#router.add('ALL', route.path, route)
  }

  find(path: string): RouteMatch | undefined {
    const [[first] = [], stash = []] = this.#router.match('ALL', path)
    if (first === undefined) return undefined
    const at = first[1]['rest']
    return { route: first[0], rest: typeof at === 'number' ? (stash[at] ?? '') : '' }
  }
}

/**
 * The match, or an error with status 404 or 405. A route for GET also answers HEAD. `advice` is
 * part of the 404 message.
 */
export function expectMatch(
  match: RouteMatch | undefined,
  method: string,
  advice: string,
): RouteMatch {
  if (match === undefined) {
    throw new HttpError(404, `There is nothing at this address. ${advice}`, { code: 'unknown_url' })
  }
  const { method: allowed } = match.route
  if (method === allowed || (method === 'HEAD' && allowed === 'GET')) return match
  const allow = allowed === 'GET' ? 'GET, HEAD' : allowed
  throw new HttpError(405, `This address takes ${allow} only.`, {
    code: 'method_not_allowed',
    headers: ['allow', allow],
  })
}
