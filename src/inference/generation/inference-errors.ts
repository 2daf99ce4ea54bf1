/** The errors of inference: their codes, HTTP statuses, and functions that create them. */

import { InferenceError, type InferenceErrorDetails, messageOf } from '../../foundation/errors.ts'
import type { GenerationEnd } from './inference-engine.ts'

/** The codes of `InferenceError`, each with its HTTP status. */
export const inferenceStatus = {
  /** The queue is full; try again later. */
  queue_full: 429,
  /** The request's own time-out expired while it was queued or in the engine. */
  request_timeout: 504,
  /** The engine was silent for too long. */
  engine_timeout: 504,
  /** The engine was lost, and the request could not be retried on another engine. */
  engine_lost: 503,
  /** No engine is ready. */
  not_ready: 503,
  /** The backend is closing. */
  closing: 503,
  /** Prompt and completion do not fit into the model's context. */
  context_length_exceeded: 400,
  /** A guardrail rule rejected the prompt. */
  content_filter: 400,
  /** The engine does not support what was requested, such as a schema that it cannot enforce. */
  unsupported: 400,
  /** The engine broke its contract. */
  EngineContractError: 500,
  /** The server behind the engine failed, or refused for a reason that the client did not cause. */
  upstream_error: 502,
  /** The engine failed on this request. */
  engine_error: 500,
  /** The client has disconnected or canceled. */
  canceled: 499,
} as const satisfies Record<string, number>

export type InferenceErrorCode = keyof typeof inferenceStatus

export function inferenceError(
  code: InferenceErrorCode,
  message: string,
  details: Omit<InferenceErrorDetails, 'code'> = {},
): InferenceError {
  return new InferenceError(message, { ...details, code })
}

/** The code of an error; `undefined` if the error has none of the codes above. */
export function inferenceCodeOf(error: unknown): InferenceErrorCode | undefined {
  if (!InferenceError.isInstance(error) || !(error.code in inferenceStatus)) return undefined
  return error.code as InferenceErrorCode
}

export function failed(code: InferenceErrorCode, message: string): GenerationEnd {
  return { kind: 'failed', error: inferenceError(code, message) }
}

export function timedOut(timeoutMs: number): GenerationEnd {
  return failed('request_timeout', `no answer within ${timeoutMs / 1000} s`)
}

export function contractBroken(what: string): GenerationEnd {
  return failed('EngineContractError', `the engine broke its contract: it ${what}`)
}

/** Keeps an error that has a known code. Any other error becomes the cause of an `engine_error`. */
export function engineFailed(error: unknown): GenerationEnd {
  if (inferenceCodeOf(error) !== undefined) return { kind: 'failed', error }
  const message = `the engine failed: ${messageOf(error)}`
  return { kind: 'failed', error: inferenceError('engine_error', message, { cause: error }) }
}
