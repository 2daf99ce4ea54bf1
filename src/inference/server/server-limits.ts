/** The limits for clients of the server; the defaults suit one machine. */

import {
  expectBoolean,
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectOrigin,
  invalid,
} from '../../foundation/options.ts'

/** The limits of an inference server. */
export interface ServerLimits {
  /** The maximum size of a request's body in bytes. Default 1 MiB. */
  readonly bodyBytes: number
  /** The maximum size of a chat request's body in bytes. Default 4 MiB. */
  readonly chatBodyBytes: number
  /** The maximum depth of nested arrays and objects in a body. Default 64. */
  readonly depth: number
  /** The maximum length of a request's URL in characters. Default 2048. */
  readonly urlLength: number
  /** The maximum size of all headers in bytes. Default 16 KiB. */
  readonly headerBytes: number
  /** The maximum number of headers of a request. Default 100. */
  readonly headerCount: number
  /** The maximum time until all headers are received. Default 10 s. */
  readonly headersTimeoutMs: number
  /** The maximum time until the whole request is received. Default 30 s. */
  readonly requestTimeoutMs: number
  /** How often the two time limits above are checked. Default 2 s. */
  readonly connectionsCheckMs: number
  /**
   * How long an idle connection is kept. Default 75 s: a client whose event loop is busy for a few
   * seconds would otherwise send its next request on a connection that is closed.
   */
  readonly keepAliveMs: number
  /**
   * The maximum number of connections; at the limit, a new one closes an idle one. Default 1024.
   */
  readonly maxConnections: number
  /** The maximum number of requests on one connection. Default 1000. */
  readonly maxRequestsPerSocket: number
  /** The number of unread bytes of a stream at which its generation is paused. Default 256 KiB. */
  readonly streamBufferBytes: number
  /** How many seconds a client may read nothing before its connection is closed. Default 30. */
  readonly slowReaderSeconds: number
  /** How many seconds stopping waits for the requests in flight. Default 30. */
  readonly drainSeconds: number
  /** The maximum number of prompts in one request. Default 1024. */
  readonly maxPrompts: number
  /** Names that a `Host` header may have besides those of this server. Default none. */
  readonly allowedHosts: readonly string[]
  /** Allowed origins of web pages besides loopback, such as `https://app.example`. Default none. */
  readonly allowedOrigins: readonly string[]
  /** Refuses request fields that have no effect instead of ignoring them. Default `false`. */
  readonly isStrict: boolean
}

const defaults: ServerLimits = {
  bodyBytes: 1_048_576,
  chatBodyBytes: 4_194_304,
  depth: 64,
  urlLength: 2048,
  headerBytes: 16_384,
  headerCount: 100,
  headersTimeoutMs: 10_000,
  requestTimeoutMs: 30_000,
  connectionsCheckMs: 2000,
  keepAliveMs: 75_000,
  maxConnections: 1024,
  maxRequestsPerSocket: 1000,
  streamBufferBytes: 262_144,
  slowReaderSeconds: 30,
  drainSeconds: 30,
  maxPrompts: 1024,
  allowedHosts: [],
  allowedOrigins: [],
  isStrict: false,
}

/** The limits with defaults filled in, or `ValueError`. */
export function resolveServerLimits(given: Partial<ServerLimits> = {}): ServerLimits {
  expectKnownKeys('ServerLimits', given, Object.keys(defaults), 'limits.')
  const limits = { ...defaults, ...given }
  for (const [name, value] of Object.entries(limits)) {
    const field = `limits.${name}`
    if (name.endsWith('Seconds')) expectNumber(field, value, { min: 0, max: 86_400 })
    else if (name === 'isStrict') expectBoolean(field, value)
    else if (name.startsWith('allowed')) expectStrings(field, value)
    else expectInteger(field, value, { min: 1, max: 2 ** 31 - 1 })
  }
  for (const [at, origin] of limits.allowedOrigins.entries()) {
    expectOrigin(`limits.allowedOrigins[${at}]`, origin)
  }
  return limits
}

function expectStrings(field: string, value: unknown): void {
  if (Array.isArray(value) && value.every((one) => typeof one === 'string')) return
  throw invalid(field, 'a list of strings', value)
}
