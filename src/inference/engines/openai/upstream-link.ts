/** The HTTP connections to a server, its address, and its health checks. */

import type { Dispatcher, Pool } from 'undici'
import { type Clock, sleep } from '../../../foundation/clock.ts'
import { tryRead } from '../../../foundation/errors.ts'
import { invalid } from '../../../foundation/options.ts'
import { ignoredFieldsHeader } from '../../generation/fields/request-fields.ts'
import { boundedWait } from '../../../foundation/promises.ts'

export interface UpstreamAddress {
  readonly origin: string
  /** The path prefix of the API's endpoints, such as `/v1`. */
  readonly api: string
  /** The path prefix of endpoints outside the API, such as `/tokenize`. It is often empty. */
  readonly root: string
}

/** Parses the address of a server. Without a path, `/v1` is assumed. */
export function toUpstreamAddress(baseUrl: string): UpstreamAddress {
  const expected = 'an http or https URL without a user, a query or a fragment'
  const url = URL.parse(baseUrl)
  // The error does not quote the value, because an invalid URL may contain a password.
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

/** The head of a response. The body must be read to the end or discarded. */
export interface UpstreamResponse {
  readonly status: number
  readonly retryAfter: string | null
  readonly contentType: string
  /** Request fields that the server ignored. Only tutti servers report them, in a header. */
  readonly ignored: readonly string[]
  readonly isJson: boolean
  readonly bytes: AsyncIterable<Uint8Array>
  text(maxChars?: number): Promise<string>
  discard(): void
}

export interface UpstreamLinkOptions {
  readonly origin: string
  readonly apiKey: string | null
  readonly connections: number
}

const maxIgnoredNames = 32

/** The maximum number of characters in a body, enough for a list of models or tokens. */
const maxTextChars = 16 << 20

/** A pool of connections. They are kept alive, and redirects are not followed. */
export class UpstreamLink {
  /** undici is loaded only for engines that need it, because loading takes long. */
  readonly #pool: Promise<Pool>
  readonly #headers: Readonly<Record<string, string>>

  constructor({ origin, apiKey, connections }: UpstreamLinkOptions) {
    // A long prompt may take minutes. Callers set their own deadlines.
    const limits = { headersTimeout: 0, bodyTimeout: 0, allowH2: false }
    this.#pool = import('undici').then((undici) => {
      return new undici.Pool(origin, { connections, ...limits })
    })
    this.#headers = apiKey === null ? {} : { authorization: `Bearer ${apiKey}` }
  }

  get(path: string, signal: AbortSignal): Promise<UpstreamResponse> {
    return this.#send({ method: 'GET', path, headers: this.#headers, signal })
  }

  /** Sends JSON text in a POST request. Aborting the signal also ends the body of the response. */
  post(path: string, json: string, signal: AbortSignal): Promise<UpstreamResponse> {
    const headers = { ...this.#headers, 'content-type': 'application/json' }
    return this.#send({ method: 'POST', path, headers, body: json, signal })
  }

  async close(): Promise<void> {
    const pool = await this.#pool
    await pool.destroy()
  }

  async #send(options: Dispatcher.RequestOptions): Promise<UpstreamResponse> {
    const pool = await this.#pool
    const { statusCode, headers, body } = await pool.request(options)
    // Without a listener, an error of the body before it is read would crash the process.
    body.on('error', () => {})
    const retryAfter = headers['retry-after']
    const contentType = String(headers['content-type'] ?? 'application/octet-stream')
    const ignored = headers[ignoredFieldsHeader]
    return {
      status: statusCode,
      retryAfter: typeof retryAfter === 'string' ? retryAfter : null,
      contentType,
      ignored: typeof ignored === 'string' ? parseNames(ignored) : [],
      isJson: /^application\/json\b/i.test(contentType),
      bytes: body as AsyncIterable<Uint8Array>,
      text: (maxChars = maxTextChars) => readText(body as AsyncIterable<Uint8Array>, maxChars),
      discard: () => void body.destroy(),
    }
  }
}

function parseNames(header: string): string[] {
  const names = header.split(',', maxIgnoredNames).map((name) => name.trim())
  return tryRead(() => names.map(decodeURIComponent).filter((name) => name !== '')) ?? names
}

/** Reads a little more than `maxChars` characters at most, and discards the rest of the body. */
async function readText(bytes: AsyncIterable<Uint8Array>, maxChars: number): Promise<string> {
  const decoder = new TextDecoder()
  let text = ''
  for await (const chunk of bytes) {
    text += decoder.decode(chunk, { stream: true })
    if (text.length > maxChars) break
  }
  return text
}

const probeTimeoutMs = 5000
const probePauseMs = 1000
const maxProbes = 3

export interface ProbeOptions {
  readonly link: UpstreamLink
  readonly path: string
  readonly clock: Clock
  readonly signal: AbortSignal
}

/** Returns the status of a GET request; `null` if the request fails or takes too long. */
export async function probeOnce({
  link,
  path,
  clock,
  signal,
}: ProbeOptions): Promise<number | null> {
  const timeout = new AbortController()
  try {
    const sending = link.get(path, AbortSignal.any([signal, timeout.signal]))
    const response = await boundedWait(clock, probeTimeoutMs, sending)
    response.discard()
    return response.status
  } catch {
    return null
  } finally {
    timeout.abort()
  }
}

/** Probes a server up to `maxProbes` times. Rejects only with the signal's reason. */
export async function isResponding(probe: ProbeOptions): Promise<boolean> {
  for (let attempt = 1; ; attempt++) {
    const status = await probeOnce(probe)
    probe.signal.throwIfAborted()
    if (status !== null && status < 500) return true
    if (attempt === maxProbes) return false
    await sleep(probe.clock, probePauseMs, probe)
  }
}

export function getPath(value: unknown, ...path: readonly (string | number)[]): unknown {
  let found = value
  for (const key of path) {
    if (typeof found !== 'object' || found === null || !Object.hasOwn(found, key)) return undefined
    found = (found as Record<string | number, unknown>)[key]
  }
  return found
}

export const textOr = <T>(value: unknown, otherwise: T): string | T =>
  typeof value === 'string' ? value : otherwise

export const countOr = <T>(value: unknown, otherwise: T): number | T =>
  typeof value === 'number' && Number.isInteger(value) && value >= 0 ? value : otherwise

export const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : [])

export const parseJson = (text: string): unknown => tryRead(() => JSON.parse(text) as unknown)
