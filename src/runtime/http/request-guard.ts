/** Decides whether a request is served, before its body is read. */

import type { IncomingMessage } from 'node:http'
import { isLoopbackHost } from '../../foundation/options.ts'
import { HttpError } from './http-error.ts'
import { waitsForContinue } from './json-body.ts'

/** A key that a server accepts. */
export interface AcceptedKey {
  /** `null` for a key without a name. */
  readonly name: string | null
  /** Counts a request. Throws the error of a limit that is used up. */
  admit(): Admission
  /** Counts tokens that a model has read and written for a request. */
  addTokens(promptTokens: number, completionTokens: number): void
  /** Called when the response to a request with this key has ended. */
  ended(status: number): void
}

export interface Admission {
  /** Headers of the response, as alternating names and values. */
  readonly headers: readonly string[]
  /** Undoes the count of the request. */
  giveBack(): void
}

export interface KeyRing {
  /** Finds the key that equals the bytes from the client. */
  find(given: Buffer): AcceptedKey | undefined
}

export interface RequestGuardOptions {
  /** `null` if no key is needed. */
  readonly keys: KeyRing | null
  /** Whether `Origin` must equal `Host`, because browsers send cookies to every port. */
  readonly usesCookies?: boolean
  /** Accepted `Host` headers besides loopback. IPv6 addresses are in brackets. */
  readonly hosts: readonly string[]
  /** The address that the error for a disallowed `Host` recommends. */
  readonly endpoint: string
  /** The option that the error for a disallowed `Host` names. Default: `limits.allowedHosts`. */
  readonly hostOption?: string
  readonly origins: readonly string[]
  readonly urlLength: number
  readonly headerCount: number
}

type RequestHead = Pick<IncomingMessage, 'method' | 'url' | 'headers' | 'rawHeaders'>

/**
 * Known hosts are loopback and the allowed hosts, with any port, because port forwarding changes
 * the port. Known origins are the known hosts and the allowed origins; with cookies, only the
 * request's host.
 */
export class RequestGuard {
  readonly #options: RequestGuardOptions
  readonly #hosts: ReadonlySet<string>
  readonly #origins: ReadonlySet<string>

  constructor(options: RequestGuardOptions) {
    const { hosts, origins } = options
    this.#options = options
    this.#hosts = new Set(hosts.map((host) => host.toLowerCase()))
    this.#origins = new Set(origins)
  }

  /**
   * Throws an `HttpError` if the request must not be served. Returns the key of the request; `null`
   * if no key is needed, as for a public route.
   */
  check(request: RequestHead, isPublic: boolean): AcceptedKey | null {
    const { url = '', headers, rawHeaders } = request
    if (url.length > this.#options.urlLength) {
      throw new HttpError(414, 'The address is too long.', { code: 'uri_too_long' })
    }
    if (rawHeaders.length > 2 * this.#options.headerCount) {
      throw new HttpError(431, 'There are too many headers.', { code: 'headers_too_large' })
    }
    if (!this.#isKnownHost(headers.host ?? '')) throw hostNotAllowed(this.#options)
    if (this.#options.usesCookies === true) expectSameOrigin(headers)
    else if (headers.origin !== undefined && !this.#isKnownOrigin(headers.origin)) {
      const message =
        'This Origin is not allowed. Name it in `limits.allowedOrigins` (--allow-origin).'
      throw new HttpError(403, message, { code: 'origin_not_allowed' })
    }
    // Browsers send a preflight without the key.
    if (isPreflight(request)) return null
    const { keys } = this.#options
    const key = isPublic || keys === null ? null : findKey(keys, request)
    if (headers.expect !== undefined && !waitsForContinue(request)) {
      throw new HttpError(417, 'The only supported value of Expect is "100-continue".', {
        code: 'bad_request',
      })
    }
    return key
  }

  corsHeaders({ headers: { origin } }: RequestHead): readonly string[] {
    if (this.#options.usesCookies === true || origin === undefined) return []
    if (!this.#isKnownOrigin(origin)) return []
    return ['access-control-allow-origin', origin, ...corsHeaderValues]
  }

  #isKnownHost(given: string): boolean {
    const host = given.toLowerCase()
    const name = host.replace(/:\d{1,5}$/, '')
    // The options may contain a host with its port.
    return isLoopbackHost(name) || this.#hosts.has(name) || this.#hosts.has(host)
  }

  #isKnownOrigin(origin: string): boolean {
    const host = /^https?:\/\/(.+)$/.exec(origin)?.[1]
    return this.#origins.has(origin) || (host !== undefined && this.#isKnownHost(host))
  }
}

function findKey(keys: KeyRing, { url = '', headers }: RequestHead): AcceptedKey {
  if (keyInUrlPattern.test(url)) {
    throw unauthorized('Keys in the address are not accepted: they end up in logs. Send ')
  }
  const { authorization, 'x-api-key': plain } = headers
  if (authorization === undefined && plain === undefined) {
    throw unauthorized('No API key was given. Send ')
  }
  const given = bearerPattern.exec(authorization ?? '')?.[1] ?? plain ?? ''
  // Node decodes headers as Latin-1.
  const key = keys.find(Buffer.from(String(given), 'latin1'))
  if (key === undefined) throw unauthorized('The API key is wrong. Send ')
  return key
}

/** Ignores a default port in `Host`: a proxy may add it, and browsers omit it from `Origin`. */
function expectSameOrigin({ host = '', origin }: RequestHead['headers']): void {
  if (origin === undefined) return
  const port = origin.startsWith('https:') ? ':443' : ':80'
  const hosts = [host, host.endsWith(port) ? host.slice(0, -port.length) : `${host}${port}`]
  const sameOrigins = hosts.flatMap((one) => [`http://${one}`, `https://${one}`])
  if (sameOrigins.includes(origin.toLowerCase())) return
  throw new HttpError(403, 'Pages of other servers are not allowed to call this server.', {
    code: 'origin_not_allowed',
  })
}

export const isPreflight = ({ method, headers }: Omit<RequestHead, 'url' | 'rawHeaders'>) =>
  method === 'OPTIONS' &&
  headers.origin !== undefined &&
  headers['access-control-request-method'] !== undefined

/** The response to a preflight allows any header, because clients of the API add their own. */
export function preflightHeaders({ headers }: Pick<RequestHead, 'headers'>): readonly string[] {
  const wanted = headers['access-control-request-headers']
  const isPrivate = headers['access-control-request-private-network'] === 'true'
  return [
    'access-control-allow-methods',
    'GET, HEAD, POST, DELETE',
    'access-control-max-age',
    '600',
    ...(wanted === undefined ? [] : ['access-control-allow-headers', wanted]),
    ...(isPrivate ? ['access-control-allow-private-network', 'true'] : []),
  ]
}

const corsHeaderValues = [
  'vary',
  'Origin',
  'access-control-expose-headers',
  [
    'x-request-id, x-tutti-ignored-fields, retry-after',
    ...['requests', 'tokens'].flatMap((unit) =>
      ['limit', 'remaining', 'reset'].map((part) => `x-ratelimit-${part}-${unit}`),
    ),
  ].join(', '),
]

const bearerPattern = /^bearer +(.*)$/is
const keyInUrlPattern = /[?&](?:api[_-]?key|key|token|access[_-]?token|authorization)=/i

function hostNotAllowed({
  endpoint,
  hostOption = 'limits.allowedHosts',
}: RequestGuardOptions): HttpError {
  const message =
    `This Host is not allowed. Call the server as ${endpoint}, ` +
    `or name the host in \`${hostOption}\` (--allow-host).`
  return new HttpError(403, message, { code: 'host_not_allowed' })
}

const unauthorized = (reason: string): HttpError =>
  new HttpError(401, `${reason}the header "Authorization: Bearer <key>" or "x-api-key: <key>".`, {
    code: 'invalid_api_key',
    headers: ['www-authenticate', 'Bearer'],
  })
