/** Finds the route of a path; the only file that names the routing library. */

import { RegExpRouter } from 'hono/router/reg-exp-router'
import type { HttpExchange } from './http-exchange.ts'
import { HttpError } from './http-error.ts'
import type { RequestSchemas } from './requests/request-schema.ts'
import type { ResponseName } from './response-schemas.ts'

/** One path of the server. A body is read only for routes that limit its size. */
export interface Route {
  readonly method: 'GET' | 'POST'
  /** As the routing library spells it: `/v1/models/:rest{.+}`. */
  readonly path: string
  /** Needs no API key. Default `false`. */
  readonly isOpen?: boolean
  readonly bodyBytes?: number
  readonly document: RouteDocument
  /** `body` is the parsed JSON, `rest` the text that matched `:rest` in the path. */
  answer(exchange: HttpExchange, body: unknown, rest: string): Promise<void> | void
}

/** What the OpenAPI document says about a route. */
export interface RouteDocument {
  readonly summary: string
  /** The schema of the request's body. */
  readonly body?: keyof RequestSchemas
  /** The schema of a successful response; without one, it is not described. */
  readonly ok?: ResponseName
  /** Default `Error`. */
  readonly failure?: ResponseName
  /** The response is plain text instead of JSON. */
  readonly isText?: boolean
  /** The response may also be a stream of events. */
  readonly isStream?: boolean
}

export interface RouteMatch {
  readonly route: Route
  readonly rest: string
}

/** Matches paths as they are spelled: nothing is decoded, merged or resolved. */
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

/** The match, or an error with status 404 or 405. A route for GET also answers HEAD. */
export function expectMatch(match: RouteMatch | undefined, method: string): RouteMatch {
  if (match === undefined) {
    throw new HttpError(404, 'There is nothing at this address.', { code: 'unknown_url' })
  }
  const { method: allowed } = match.route
  if (method === allowed || (method === 'HEAD' && allowed === 'GET')) return match
  const allow = allowed === 'GET' ? 'GET, HEAD' : allowed
  throw new HttpError(405, `This address takes ${allow} only.`, {
    code: 'method_not_allowed',
    headers: ['allow', allow],
  })
}
