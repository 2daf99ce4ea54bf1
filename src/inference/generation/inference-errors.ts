/** The errors of inference: their codes, HTTP statuses, and functions that create them. */

import { InferenceError, type InferenceErrorDetails, messageOf } from '../../foundation/errors.ts'
import type { GenerationEnd } from './inference-engine.ts'

export const statusByCode = {
  queue_full: 429,
  /** The request's own time-out expired while it was queued or in the engine. */
  request_timeout: 504,
  engine_timeout: 504,
  /** The engine was lost, and the request could not be retried on another engine. */
  engine_lost: 503,
  not_ready: 503,
  /** The model needs more memory than all models together may have. */
  model_too_large: 503,
  closing: 503,
  context_length_exceeded: 400,
  /** A guardrail rule rejected the prompt. */
  content_filter: 400,
  /** The engine does not support the request, for example because it cannot enforce a schema. */
  unsupported: 400,
  EngineContractError: 500,
  /** The server behind the engine failed, for a reason that the client did not cause. */
  upstream_error: 502,
  engine_error: 500,
  /** The client has disconnected or canceled. */
  canceled: 499,
} as const satisfies Record<string, number>

export type InferenceErrorCode = keyof typeof statusByCode

export function inferenceError(
  code: InferenceErrorCode,
  message: string,
  details: Omit<InferenceErrorDetails, 'code'> = {},
): InferenceError {
  return new InferenceError(message, { ...details, code })
}

/** Returns the code of an error; `undefined` if the error has none of the codes above. */
export function toInferenceCode(error: unknown): InferenceErrorCode | undefined {
  if (!InferenceError.isInstance(error) || !(error.code in statusByCode)) return undefined
  return error.code as InferenceErrorCode
}

export function toFailedEnd(code: InferenceErrorCode, message: string): GenerationEnd {
  return { kind: 'failed', error: inferenceError(code, message) }
}

export function toTimeoutEnd(timeoutMs: number): GenerationEnd {
  return toFailedEnd('request_timeout', `no answer within ${timeoutMs / 1000} s`)
}

export function toContractErrorEnd(what: string): GenerationEnd {
  return toFailedEnd('EngineContractError', `the engine broke its contract: it ${what}`)
}

/** An error with a known code is kept. Any other error becomes the cause of an `engine_error`. */
export function toEngineErrorEnd(error: unknown): GenerationEnd {
  if (toInferenceCode(error) !== undefined) return { kind: 'failed', error }
  const message = `the engine failed: ${messageOf(error)}`
  return { kind: 'failed', error: inferenceError('engine_error', message, { cause: error }) }
}
