/**
 * Converts a server's error responses to an `InferenceError`. The server's message appears only in
 * the `cause`, in the refusal that a client gets for an invalid request, and in errors with status
 * 500, which servers also send for invalid requests.
 */

import type { Clock } from '../../../foundation/clock.ts'
import type { InferenceError, RequestRefusal } from '../../../foundation/errors.ts'
import { definedFields } from '../../../foundation/options.ts'
import { boundedWait } from '../../../foundation/promises.ts'
import { maskSecrets } from '../../../foundation/secrets.ts'
import { inferenceError, type InferenceErrorCode } from '../../generation/inference-errors.ts'
import { parseJson, getPath, textOr, type UpstreamResponse } from './upstream-link.ts'

/** `waitMs` is the delay after which a retry may succeed; `null` if a retry is pointless. */
export interface Refusal {
  readonly error: InferenceError
  readonly waitMs: number | null
}

/** A refusal whose body may still be unread. */
export interface PendingRefusal extends Refusal {
  discard(): void
}

const maxMessageChars = 2000
const defaultWaitMs = 1000
const maxWaitMs = 10_000
const maxRetryAfterMs = 86_400_000

/** How long to wait for the body of an error. After that, only the status is used. */
const bodyTimeoutMs = 5000
const maxBodyChars = 65_536

interface RefusalOptions {
  readonly clock: Clock
  readonly isLastAttempt: boolean
  /** Whether the path of the request is one that tutti only passes on. Default: false. */
  readonly isForwarded?: boolean
}

/** Converts an error response. Does not wait for the body if the caller will retry. */
export async function readRefusal(
  response: UpstreamResponse,
  { clock, isLastAttempt, isForwarded = false }: RefusalOptions,
): Promise<PendingRefusal> {
  const { status, retryAfter } = response
  const discard = (): void => response.discard()
  const text = response.text(maxBodyChars)
  const statusRefusal = toRefusal(status, '', retryAfter, clock.now())
  if (!isLastAttempt && statusRefusal.waitMs !== null) {
    text.catch(() => {})
    return { ...statusRefusal, discard }
  }
  const body = await boundedWait(clock, bodyTimeoutMs, text).catch(() => {
    discard()
    return ''
  })
  return { ...toRefusal(status, body, retryAfter, clock.now(), isForwarded), discard }
}

export function toRefusal(
  status: number,
  body: string,
  retryAfter: string | null,
  nowSeconds: number,
  isForwarded = false,
): Refusal {
  const isBusy = status === 429 || status === 503
  const askedMs = parseRetryAfterMs(retryAfter, nowSeconds)
  const error = createError(codeFor(status, body), status, body, { askedMs, isForwarded })
  return { error, waitMs: isBusy ? Math.min(askedMs, maxWaitMs) : null }
}

export function toStreamError(chunk: unknown): InferenceError {
  const ownCode = getPath(chunk, 'error', 'code')
  const isClients = getPath(chunk, 'error', 'type') === 'invalid_request_error'
  const isStatus = typeof ownCode === 'number' && ownCode >= 400 && ownCode < 600
  const status = isStatus ? ownCode : isClients ? 400 : 500
  const body = JSON.stringify(chunk)
  const failure = isStatus ? statusMessage(status) : 'the server behind this one reported an error'
  return createError(codeFor(status, body), status, body, { failure })
}

export function parseRetryAfterMs(header: string | null, nowSeconds: number): number {
  if (header === null || header.trim() === '') return defaultWaitMs
  const seconds = Number(header)
  const ms = Number.isNaN(seconds) ? Date.parse(header) - nowSeconds * 1000 : seconds * 1000
  return Number.isNaN(ms) ? defaultWaitMs : Math.min(Math.max(ms, 0), maxRetryAfterMs)
}

/** Matches errors of servers that do not use the code `context_length_exceeded`. */
const contextLengthPattern =
  /maximum context length|exceeds? the (?:available |model's )?context|exceed_context_size/i

function codeFor(status: number, body: string): InferenceErrorCode {
  const ownCode = getPath(parseJson(body), 'error', 'code')
  if (ownCode === 'context_length_exceeded' || ownCode === 'content_filter') return ownCode
  const isRefused = status === 400 || status === 413 || status === 422
  if (isRefused && contextLengthPattern.test(body)) return 'context_length_exceeded'
  if (isRefused || status === 501) return 'unsupported'
  if (status === 429) return 'queue_full'
  if (status === 503) return 'not_ready'
  if (status === 408 || status === 504) return 'engine_timeout'
  return 'upstream_error'
}

const codeMessages: Partial<Record<InferenceErrorCode, string>> = {
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
    failure = statusMessage(status),
    isForwarded = false,
  }: { readonly askedMs?: number; readonly failure?: string; readonly isForwarded?: boolean } = {},
): InferenceError {
  const parsed = parseJson(body)
  const nested = getPath(parsed, 'error')
  const error = typeof nested === 'object' && nested !== null ? nested : parsed
  const givenMessage = getPath(error, 'message') ?? nested ?? getPath(parsed, 'detail')
  const serverText = maskSecrets(textOr(givenMessage, body)).slice(0, maxMessageChars)
  const known = codeMessages[code]
  const isShown = status === 500 && typeof givenMessage === 'string' && serverText !== ''
  const text = isShown ? `${failure}: ${serverText.replace(/\.$/, '')}` : failure
  const sentence = known === undefined ? text : `${known} (status ${status})`
  const details = definedFields({ cause: new Error(serverText), hint: hintFor(status) })
  const isUnknownObject = isForwarded && status === 404 && namesObject(error)
  if (!clientStatuses.has(status) && !isUnknownObject)
    return inferenceError(code, sentence, details)
  const message = serverText === '' ? sentence : serverText
  const [param, ownCode] = [getPath(error, 'param'), getPath(error, 'code')]
  const defaultCode = code === 'unsupported' ? null : code
  const wait = status === 429 ? { retryAfterSeconds: Math.ceil(askedMs / 1000) } : {}
  const refusal = {
    status,
    message,
    param: nameOr(param, null),
    code: nameOr(ownCode, defaultCode),
  }
  const more = { ...wait, ...collectNumbers(error) }
  return inferenceError(code, sentence, { ...details, refusal: { ...refusal, ...more } })
}

const maxDetails = 16

function collectNumbers(error: unknown): Pick<RequestRefusal, 'details'> {
  const numbers = Object.entries(error ?? {}).filter(
    (entry): entry is [string, number] => typeof entry[1] === 'number' && entry[0] !== 'code',
  )
  if (numbers.length === 0 || numbers.length > maxDetails) return {}
  return { details: Object.fromEntries(numbers) }
}

const maxNameChars = 200

const nameOr = <T>(value: unknown, otherwise: T): string | T =>
  typeof value === 'string' ? value.slice(0, maxNameChars) : otherwise

const statusMessage = (status: number): string => `the server behind this one answered ${status}`

/** Statuses of errors that the client's request caused. The client gets the server's message. */
const clientStatuses: ReadonlySet<number> = new Set([400, 413, 415, 422, 429, 501])

/**
 * Whether a 404 is about something that the client named, such as an earlier response. Otherwise,
 * the server lacks the path or the model, which tutti has named.
 */
const namesObject = (error: unknown): boolean =>
  getPath(error, 'type') === 'invalid_request_error' &&
  !['unknown_url', 'model_not_found'].includes(textOr(getPath(error, 'code'), ''))

function hintFor(status: number): string | undefined {
  if (status === 401 || status === 403) return "check the engine's API key"
  if (status === 404) return "check the engine's base URL; it usually ends in /v1"
  if (status >= 300 && status < 400) {
    return 'redirects are not followed: set the base URL to where it leads'
  }
  return undefined
}
