/**
 * Maps a server's error responses to `InferenceError`. The server's message goes only into the
 * `cause`, into the refusal that a client gets for its own mistake, and into the error for status
 * 500, which servers also send for mistakes of clients.
 */

import type { Clock } from '../../../foundation/clock.ts'
import type { InferenceError, RequestRefusal } from '../../../foundation/errors.ts'
import { boundedWait } from '../../../foundation/promises.ts'
import { maskSecrets } from '../../../foundation/secrets.ts'
import { inferenceError, type InferenceErrorCode } from '../../generation/inference-errors.ts'
import { parseJson, pick, textOr, type UpstreamResponse } from './upstream-link.ts'

/** `waitMs` is the time after which a retry may succeed; `null` if a retry is pointless. */
export interface Refusal {
  readonly error: InferenceError
  readonly waitMs: number | null
}

/** A refusal whose body may not have arrived yet. */
export interface ReadRefusal extends Refusal {
  /** Discards the unread body. If there is any, its connection is closed. */
  leave(): void
}

const maxMessageChars = 2000
const defaultWaitMs = 1000
/** The maximum delay of a retry, limited because a caller waits for the retry. */
const maxWaitMs = 10_000
/** The maximum `Retry-After` that is sent to clients: a day. */
const maxAskedMs = 86_400_000

/** How long a server may take to send the body of an error. The status alone is enough. */
const bodyMs = 5000
/** The maximum length of an error's body. Longer bodies hardly explain more. */
const bodyChars = 65_536

/**
 * Reads a response with a status other than 200. The wait for the body is limited. If the server is
 * busy and the caller will retry, the body is not awaited, because nobody reads it.
 */
export async function readRefusal(
  response: UpstreamResponse,
  { clock, isLast }: { readonly clock: Clock; readonly isLast: boolean },
): Promise<ReadRefusal> {
  const { status, retryAfter } = response
  const leave = (): void => response.discard()
  const words = response.text(bodyChars)
  const early = toRefusal(status, '', retryAfter, clock.now())
  if (!isLast && early.waitMs !== null) {
    words.catch(() => {})
    return { ...early, leave }
  }
  const body = await boundedWait(clock, bodyMs, words).catch(() => {
    leave()
    return ''
  })
  return { ...toRefusal(status, body, retryAfter, clock.now()), leave }
}

/**
 * Converts a response with a status other than 200. `nowSeconds` is the current time, for dates in
 * `Retry-After`.
 */
export function toRefusal(
  status: number,
  body: string,
  retryAfter: string | null,
  nowSeconds: number,
): Refusal {
  const isBusy = status === 429 || status === 503
  const askedMs = askedWaitMs(retryAfter, nowSeconds)
  const error = createError(codeFor(status, body), status, body, { askedMs })
  return { error, waitMs: isBusy ? Math.min(askedMs, maxWaitMs) : null }
}

/** Converts the error that a chunk of a stream reports. */
export function refusalIn(chunk: unknown): InferenceError {
  const ownCode = pick(chunk, 'error', 'code')
  const isClients = pick(chunk, 'error', 'type') === 'invalid_request_error'
  const isStatus = typeof ownCode === 'number' && ownCode >= 400 && ownCode < 600
  const status = isStatus ? ownCode : isClients ? 400 : 500
  const body = JSON.stringify(chunk)
  const failure = isStatus ? answeredText(status) : 'the server behind this one reported an error'
  return createError(codeFor(status, body), status, body, { failure })
}

/** Parses `Retry-After`, which contains seconds or a date. */
export function askedWaitMs(header: string | null, nowSeconds: number): number {
  if (header === null || header.trim() === '') return defaultWaitMs
  const seconds = Number(header)
  const ms = Number.isNaN(seconds) ? Date.parse(header) - nowSeconds * 1000 : seconds * 1000
  return Number.isNaN(ms) ? defaultWaitMs : Math.min(Math.max(ms, 0), maxAskedMs)
}

/** Messages of servers that do not use the code `context_length_exceeded`. */
const contextWords =
  /maximum context length|exceeds? the (?:available |model's )?context|exceed_context_size/i

function codeFor(status: number, body: string): InferenceErrorCode {
  const ownCode = pick(parseJson(body), 'error', 'code')
  if (ownCode === 'context_length_exceeded' || ownCode === 'content_filter') return ownCode
  const isRefused = status === 400 || status === 413 || status === 422
  if (isRefused && contextWords.test(body)) return 'context_length_exceeded'
  if (isRefused || status === 501) return 'unsupported'
  if (status === 429) return 'queue_full'
  if (status === 503) return 'not_ready'
  if (status === 408 || status === 504) return 'engine_timeout'
  return 'upstream_error'
}

const sentences: Partial<Record<InferenceErrorCode, string>> = {
  context_length_exceeded: "the prompt and the answer do not fit into the model's context",
  content_filter: 'the server refused the content',
  unsupported: 'the server does not support the request',
  queue_full: 'the server is busy',
  not_ready: 'the server is not ready',
  engine_timeout: 'the server timed out',
}

function createError(
  code: InferenceErrorCode,
  status: number,
  body: string,
  {
    askedMs = defaultWaitMs,
    failure = answeredText(status),
  }: { readonly askedMs?: number; readonly failure?: string } = {},
): InferenceError {
  const hint = hintFor(status)
  const parsed = parseJson(body)
  const nested = pick(parsed, 'error')
  const error = typeof nested === 'object' && nested !== null ? nested : parsed
  const said = pick(error, 'message') ?? nested ?? pick(parsed, 'detail')
  const words = maskSecrets(textOr(said, body)).slice(0, maxMessageChars)
  const known = sentences[code]
  const told = status === 500 && typeof said === 'string' ? reported(failure, words) : failure
  const sentence = known === undefined ? told : `${known} (status ${status})`
  const details = { cause: new Error(words), ...(hint === undefined ? {} : { hint }) }
  if (!clientStatus.has(status)) return inferenceError(code, sentence, details)
  const message = words === '' ? sentence : words
  const [param, ownCode] = [pick(error, 'param'), pick(error, 'code')]
  const named = code === 'unsupported' ? null : code
  const wait = status === 429 ? { retryAfterSeconds: Math.ceil(askedMs / 1000) } : {}
  const refusal = { status, message, param: nameOr(param, null), code: nameOr(ownCode, named) }
  const more = { ...wait, ...numbersIn(error) }
  return inferenceError(code, sentence, { ...details, refusal: { ...refusal, ...more } })
}

const reported = (failure: string, words: string): string =>
  words === '' ? failure : `${failure}: ${words.replace(/\.$/, '')}`

const maxNumbers = 16

/** The numbers among an error's fields, such as the lengths of the prompt and the context. */
function numbersIn(error: unknown): Pick<RequestRefusal, 'details'> {
  const numbers = Object.entries(error ?? {}).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number' && entry[0] !== 'code',
  )
  if (numbers.length === 0 || numbers.length > maxNumbers) return {}
  return { details: Object.fromEntries(numbers) }
}

const maxNameChars = 200

const nameOr = <T>(value: unknown, otherwise: T): string | T =>
  typeof value === 'string' ? value.slice(0, maxNameChars) : otherwise

/** A message for clients with the status but without the server's message. */
const answeredText = (status: number): string => `the server behind this one answered ${status}`

/** Statuses that the client's request caused. For these, the client gets the server's message. */
const clientStatus: ReadonlySet<number> = new Set([400, 413, 415, 422, 429, 501])

function hintFor(status: number): string | undefined {
  if (status === 401 || status === 403) return "check the engine's API key"
  if (status === 404) return "check the engine's base URL; it usually ends in /v1"
  if (status >= 300 && status < 400) {
    return 'redirects are not followed: set the base URL to where it leads'
  }
  return undefined
}
