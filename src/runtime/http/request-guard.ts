/** Decides by a request's head alone, before its body is read, whether the request is served. */

import { hash, timingSafeEqual } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { isLoopbackHost } from '../../foundation/options.ts'
import { HttpError } from './http-error.ts'
import { waitsForContinue } from './json-body.ts'

export interface RequestGuardOptions {
  readonly apiKey: string | null
  /** The server's names in the `Host` header besides loopback. IPv6 addresses are in brackets. */
  readonly hosts: readonly string[]
  /** The address that is recommended in the error for a disallowed `Host`. */
  readonly endpoint: string
  readonly origins: readonly string[]
  readonly urlLength: number
  readonly headerCount: number
}

type RequestHead = Pick<IncomingMessage, 'method' | 'url' | 'headers' | 'rawHeaders'>

/**
 * Checks the URL, the number of headers, `Host`, `Origin`, the key and `Expect`, in this order.
 * Known hosts are loopback and the allowed hosts, with any port, because clients of a forwarded
 * port send the forwarded one. Known origins are those of the known hosts, and the allowed origins,
 * which are compared exactly.
 */
export class RequestGuard {
  readonly #options: RequestGuardOptions
  readonly #hosts: ReadonlySet<string>
  readonly #origins: ReadonlySet<string>
  readonly #keyHash: Buffer | null

  constructor(options: RequestGuardOptions) {
    const { apiKey, hosts, origins } = options
    this.#options = options
    this.#hosts = new Set(hosts.map((host) => host.toLowerCase()))
    this.#origins = new Set(origins)
    this.#keyHash = apiKey === null ? null : hash('sha256', apiKey, 'buffer')
  }

  /** Throws `HttpError`. `isOpen` means that the route needs no key. */
  check(request: RequestHead, isOpen: boolean): void {
    const { url = '', headers, rawHeaders } = request
    if (url.length > this.#options.urlLength) {
      throw new HttpError(414, 'The address is too long.', { code: 'uri_too_long' })
    }
    if (rawHeaders.length > 2 * this.#options.headerCount) {
      throw new HttpError(431, 'There are too many headers.', { code: 'headers_too_large' })
    }
    if (!this.#isKnownHost(headers.host ?? '')) throw hostNotAllowed(this.#options.endpoint)
    if (headers.origin !== undefined && !this.#isKnownOrigin(headers.origin)) {
      throw originNotAllowed()
    }
    // Browsers send a preflight without the key.
    if (isPreflight(request)) return
    if (!isOpen && this.#keyHash !== null) this.#checkKey(this.#keyHash, request)
    if (headers.expect !== undefined && !waitsForContinue(request)) {
      throw new HttpError(417, 'The only supported value of Expect is "100-continue".', {
        code: 'bad_request',
      })
    }
  }

  /** The headers with which a browser lets a page of a known origin read the response. */
  corsHeaders({ headers: { origin } }: RequestHead): readonly string[] {
    if (origin === undefined || !this.#isKnownOrigin(origin)) return []
    return ['access-control-allow-origin', origin, ...sharedCors]
  }

  #isKnownHost(given: string): boolean {
    const host = given.toLowerCase()
    const name = host.replace(/:\d{1,5}$/, '')
    // An allowed host may be given with its port.
    return isLoopbackHost(name) || this.#hosts.has(name) || this.#hosts.has(host)
  }

  #isKnownOrigin(origin: string): boolean {
    const host = /^https?:\/\/(.+)$/.exec(origin)?.[1]
    return this.#origins.has(origin) || (host !== undefined && this.#isKnownHost(host))
  }

  #checkKey(expected: Buffer, { url = '', headers }: RequestHead): void {
    if (keyInUrl.test(url)) {
      throw unauthorized('Keys in the address are not accepted: they end up in logs. Send ')
    }
    const { authorization } = headers
    if (authorization === undefined) throw unauthorized('No API key was given. Send ')
    // Node decodes headers as Latin-1. Hashes have equal length, so timing reveals nothing about
    // the key.
    const given = Buffer.from(bearer.exec(authorization)?.[1] ?? '', 'latin1')
    if (!timingSafeEqual(hash('sha256', given, 'buffer'), expected)) {
      throw unauthorized('The API key is wrong. Send ')
    }
  }
}

/** Whether the request is a CORS preflight of a browser. */
export const isPreflight = ({
  method,
  headers,
}: Omit<RequestHead, 'url' | 'rawHeaders'>): boolean =>
  method === 'OPTIONS' &&
  headers.origin !== undefined &&
  headers['access-control-request-method'] !== undefined

/** The answer to a preflight: clients of the API add custom headers, so any header is allowed. */
export function preflightHeaders({ headers }: Pick<RequestHead, 'headers'>): readonly string[] {
  const wanted = headers['access-control-request-headers']
  const isPrivate = headers['access-control-request-private-network'] === 'true'
  return [
    'access-control-allow-methods',
    'GET, HEAD, POST',
    'access-control-max-age',
    '600',
    ...(wanted === undefined ? [] : ['access-control-allow-headers', wanted]),
    ...(isPrivate ? ['access-control-allow-private-network', 'true'] : []),
  ]
}

const sharedCors = [
  'vary',
  'Origin',
  'access-control-expose-headers',
  'x-request-id, x-tutti-ignored-fields, retry-after',
]

const bearer = /^bearer +(.*)$/is
const keyInUrl = /[?&](?:api[_-]?key|key|token|access[_-]?token|authorization)=/i

const hostNotAllowed = (endpoint: string): HttpError =>
  new HttpError(
    403,
    `This Host is not allowed. Call the server as ${endpoint}, ` +
      'or name the host in `limits.allowedHosts` (--allow-host).',
    { code: 'host_not_allowed' },
  )

const originNotAllowed = (): HttpError =>
  new HttpError(
    403,
    'This Origin is not allowed. Name it in `limits.allowedOrigins` (--allow-origin).',
    { code: 'origin_not_allowed' },
  )

const unauthorized = (reason: string): HttpError =>
  new HttpError(401, `${reason}the header "Authorization: Bearer <key>".`, {
    code: 'invalid_api_key',
    headers: ['www-authenticate', 'Bearer'],
  })
