/** Converts errors of an inference server to error responses of the chat-completions API. */

import {
  InferenceError,
  messageOf,
  type RequestRefusal,
  type TuttiError,
} from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { type ErrorReplies, HttpError } from '../../runtime/http/http-error.ts'
import { machineName } from '../../runtime/http/listening.ts'
import {
  inferenceCodeOf,
  inferenceError,
  type InferenceErrorCode,
  inferenceStatus,
} from '../generation/inference-errors.ts'

/** The path whose error responses have additional fields. */
export const generatePath = '/generate'

/** The error responses of an inference server. Errors that clients must not see go to `log`. */
export function createErrorReplies(log: Log): ErrorReplies {
  return {
    toHttpError(thrown, requestId, path) {
      const error = toHttpError(thrown, requestId, path)
      if (isHidden(thrown)) {
        const text = maskSecrets(`${requestId} ${path} ${error.code}: ${fullMessage(thrown)}`)
        log.warn('InferenceRequestFailed', text)
      }
      return error
    },
    toBody(problem, path) {
      const { message, param, code, details, status } = problem
      const error = { ...details, message, type: typeOfStatus(status), param, code }
      if (path !== generatePath) return { error }
      return { status: 'error', message, hostname: machineName, error }
    },
    toAbortReason: (text) => inferenceError('canceled', text),
    toListenError(message, details) {
      const isTaken = details.code === 'port_in_use'
      const hint = isTaken ? `${otherPort}; ${details.hint}` : details.hint
      return new InferenceError(message, { ...details, ...(hint === undefined ? {} : { hint }) })
    },
  }
}

const otherPort = 'in a program: `port: 0`, or `useService: false` for a model without a server'

function typeOfStatus(status: number): string {
  if (status === 401) return 'authentication_error'
  if (status === 403) return 'permission_error'
  if (status === 429) return 'rate_limit_error'
  if (status === 408 || status === 504) return 'timeout_error'
  if (status === 503) return 'service_unavailable_error'
  return status >= 500 ? 'server_error' : 'invalid_request_error'
}

/** Codes whose messages are safe to show, because this package writes them. */
const shown: ReadonlySet<InferenceErrorCode> = new Set([
  'queue_full',
  'request_timeout',
  'context_length_exceeded',
  'content_filter',
  'unsupported',
  'closing',
])

/** Codes whose message is shown. Its cause is only logged. */
const shownInPart: ReadonlySet<InferenceErrorCode> = new Set(['upstream_error'])

/** Messages that replace those of engines, which may contain paths, tokens or addresses. */
const fixedMessages: Partial<Record<InferenceErrorCode, string>> = {
  engine_timeout: 'The engine did not answer in time.',
  engine_lost: 'The engine was lost while it worked on this request. Try again.',
  not_ready: 'No engine is ready. Try again later.',
  canceled: 'The server is closing.',
}

/** The body field that contains the prompt, by request path. */
const inputFields: Readonly<Record<string, string>> = {
  '/v1/chat/completions': 'messages',
  '/v1/completions': 'prompt',
}

/**
 * Converts anything that was thrown to the error for the client. An engine's message is replaced by
 * a fixed sentence and the request id, with which the log can be searched.
 */
function toHttpError(thrown: unknown, requestId: string, path: string): HttpError {
  if (thrown instanceof HttpError) return thrown
  const refusal = refusalOf(thrown)
  if (refusal !== undefined) {
    const { retryAfterSeconds: seconds } = refusal
    const headers = seconds === undefined ? [] : ['retry-after', String(seconds)]
    return new HttpError(refusal.status, refusal.message, { ...refusal, headers })
  }
  const code = inferenceCodeOf(thrown) ?? 'engine_error'
  // The client is still connected, so the server itself has canceled the request.
  const status = code === 'canceled' ? 503 : inferenceStatus[code]
  const headers = status === 429 ? ['retry-after', '1'] : status === 503 ? ['retry-after', '5'] : []
  if (code === 'unsupported') {
    return new HttpError(status, messageWithHint(thrown), { code: 'unsupported_value' })
  }
  if (shown.has(code)) {
    const param = code === 'context_length_exceeded' ? (inputFields[path] ?? null) : null
    return new HttpError(status, messageWithHint(thrown), { code, param, headers })
  }
  const fixed = fixedMessages[code] ?? 'The engine failed with this request.'
  const message = shownInPart.has(code) ? `${messageOf(thrown)}.` : fixed
  return new HttpError(status, `${message} Request id: ${requestId}.`, { code, headers })
}

/** Whether the client does not get the whole message, so that the message must be logged. */
function isHidden(thrown: unknown): boolean {
  if (thrown instanceof HttpError || refusalOf(thrown) !== undefined) return false
  const code = inferenceCodeOf(thrown)
  return code === undefined || (code !== 'canceled' && !shown.has(code))
}

const refusalOf = (thrown: unknown): RequestRefusal | undefined =>
  InferenceError.isInstance(thrown) ? thrown.refusal : undefined

function messageWithHint(thrown: unknown): string {
  const { hint } = thrown as TuttiError
  return hint === undefined ? messageOf(thrown) : `${messageOf(thrown)} (${hint})`
}

/** The message, and the message of the cause, which has details from the engine. */
function fullMessage(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined
  return cause === undefined ? messageOf(thrown) : `${messageOf(thrown)} (${messageOf(cause)})`
}
