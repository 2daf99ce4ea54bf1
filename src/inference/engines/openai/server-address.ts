/** Where a server is: its origin, and the paths of its API and of what lies beside it. */

import { invalid } from '../../../foundation/options.ts'

export interface ServerAddress {
  readonly origin: string
  /** Begins the path of each endpoint, such as `/v1`. */
  readonly api: string
  /** Begins the path of what servers have beside the API, such as `/tokenize`. Often empty. */
  readonly root: string
}

/** Takes an address with or without the API's path: `http://host:8000` means `/v1` there. */
export function toServerAddress(baseUrl: string): ServerAddress {
  const expected = 'an http or https URL without a user, a query or a fragment'
  const url = URL.parse(baseUrl)
  // The value itself is not repeated: a URL that is wrong here may hold a password.
  if (url === null) throw invalid('baseUrl', expected, undefined)
  const isHttp = url.protocol === 'http:' || url.protocol === 'https:'
  const hasMore = url.username + url.password + url.search + url.hash !== ''
  if (!isHttp || hasMore) throw invalid('baseUrl', expected, `${url.protocol}//${url.host}`)
  const path = url.pathname.replace(/\/+$/, '')
  return {
    origin: url.origin,
    api: path === '' ? '/v1' : path,
    root: path.replace(/\/v\d+$/, ''),
  }
}
