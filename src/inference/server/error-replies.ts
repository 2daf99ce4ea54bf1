/** Converts errors of an inference server to error responses in the form of each surface. */

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
  toInferenceCode,
  inferenceError,
  type InferenceErrorCode,
  statusByCode,
} from '../generation/inference-errors.ts'
import { toErrorFields } from './surfaces/chunk-stream.ts'
import { isAnthropicClient, messages } from './surfaces/messages.ts'
import { findSurface } from './surfaces/surfaces.ts'

/** The path whose error responses have additional fields. */
export const generatePath = '/generate'

/** The error responses of an inference server. Errors that clients must not see go to `log`. */
export function createErrorReplies(log: Log): ErrorReplies {
  return {
    toHttpError(thrown, requestId, path) {
      const error = toHttpError(thrown, requestId, path)
      if (isMessageHidden(thrown)) {
        const text = maskSecrets(`${requestId} ${path} ${error.code}: ${messageWithCause(thrown)}`)
        log.warn('InferenceRequestFailed', text)
      }
      return error
    },
    toBody(problem, path, headers) {
      if (path !== generatePath) {
        const other = isAnthropicClient(headers) ? messages.toErrorBody : toErrorFields
        return (findSurface(path)?.toErrorBody ?? other)(problem)
      }
      const { message } = problem
      return { status: 'error', message, hostname: machineName, ...toErrorFields(problem) }
    },
    toAbortReason: (text) => inferenceError('canceled', text),
    toListenError(message, details) {
      const isTaken = details.code === 'port_in_use'
      const hint = isTaken ? `${otherPortHint}; ${details.hint}` : details.hint
      return new InferenceError(message, { ...details, ...(hint === undefined ? {} : { hint }) })
    },
  }
}

const otherPortHint = 'in a program: `port: 0`, or `useService: false` for a model without a server'

/** Codes whose messages clients may see, because this package writes the messages. */
const publicCodes: ReadonlySet<InferenceErrorCode> = new Set([
  'queue_full',
  'request_timeout',
  'context_length_exceeded',
  'content_filter',
  'unsupported',
  'model_too_large',
  'closing',
])

/** Used instead of engines' messages, which may contain paths, tokens or addresses. */
const replacementMessages: Partial<Record<InferenceErrorCode, string>> = {
  engine_timeout: 'The engine did not answer in time.',
  engine_lost: 'The engine was lost while it worked on this request. Try again.',
  not_ready: 'No engine is ready. Try again later.',
  canceled: 'The server is closing.',
}

/**
 * Most messages of engines are replaced by a fixed sentence. The replies to errors without a public
 * code contain the request id.
 */
function toHttpError(thrown: unknown, requestId: string, path: string): HttpError {
  if (thrown instanceof HttpError) return thrown
  const refusal = getRefusal(thrown)
  if (refusal !== undefined) {
    const { retryAfterSeconds: seconds } = refusal
    const headers = seconds === undefined ? [] : ['retry-after', String(seconds)]
    return new HttpError(refusal.status, refusal.message, { ...refusal, headers })
  }
  const code = toInferenceCode(thrown) ?? 'engine_error'
  // The client is still connected, so the server itself has canceled the request.
  const status = code === 'canceled' ? 503 : statusByCode[code]
  const headers = status === 429 ? ['retry-after', '1'] : status === 503 ? ['retry-after', '5'] : []
  if (code === 'unsupported') {
    return new HttpError(status, messageWithHint(thrown), { code: 'unsupported_value' })
  }
  if (publicCodes.has(code)) {
    const param =
      code === 'context_length_exceeded' ? (findSurface(path)?.promptField ?? null) : null
    return new HttpError(status, messageWithHint(thrown), { code, param, headers })
  }
  const fixed = replacementMessages[code] ?? 'The engine failed with this request.'
  // The message of an upstream error is shown, while its cause is only logged.
  const message = code === 'upstream_error' ? `${messageOf(thrown)}.` : fixed
  return new HttpError(status, `${message} Request id: ${requestId}.`, { code, headers })
}

/** Whether to log the message, because the client does not get all of it. */
function isMessageHidden(thrown: unknown): boolean {
  if (thrown instanceof HttpError || getRefusal(thrown) !== undefined) return false
  const code = toInferenceCode(thrown)
  return code === undefined || (code !== 'canceled' && !publicCodes.has(code))
}

const getRefusal = (thrown: unknown): RequestRefusal | undefined =>
  InferenceError.isInstance(thrown) ? thrown.refusal : undefined

function messageWithHint(thrown: unknown): string {
  const { hint } = thrown as TuttiError
  return hint === undefined ? messageOf(thrown) : `${messageOf(thrown)} (${hint})`
}

function messageWithCause(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined
  const [message, reason] = [messageOf(thrown), cause === undefined ? '' : messageOf(cause)]
  return message.includes(reason) ? message : `${message} (${reason})`
}
