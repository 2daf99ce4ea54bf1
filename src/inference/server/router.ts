/** Finds the endpoint of a path; the only file that names the routing library. */

import { RegExpRouter } from 'hono/router/reg-exp-router'
import type { Endpoint } from './endpoint.ts'
import { HttpError } from './http-error.ts'

export interface RouteMatch {
  readonly endpoint: Endpoint
  readonly rest: string
}

/** Matches paths as they are spelled: nothing is decoded, merged or resolved. */
export class Router {
  readonly #router = new RegExpRouter<Endpoint>()

  constructor(endpoints: readonly Endpoint[]) {
    for (const endpoint of endpoints) this.#router.add('ALL', endpoint.path, endpoint)
  }

  find(path: string): RouteMatch | undefined {
    const [[first] = [], stash = []] = this.#router.match('ALL', path)
    if (first === undefined) return undefined
    const at = first[1]['rest']
    return { endpoint: first[0], rest: typeof at === 'number' ? (stash[at] ?? '') : '' }
  }
}

/** The match, or 404 and 405. Whoever may GET may also HEAD. */
export function expectMatch(match: RouteMatch | undefined, method: string): RouteMatch {
  if (match === undefined) {
    throw new HttpError(404, 'There is nothing at this address.', { code: 'unknown_url' })
  }
  const { method: allowed } = match.endpoint
  if (method === allowed || (method === 'HEAD' && allowed === 'GET')) return match
  const allow = allowed === 'GET' ? 'GET, HEAD' : allowed
  throw new HttpError(405, `This address takes ${allow} only.`, {
    code: 'method_not_allowed',
    headers: ['allow', allow],
  })
}
