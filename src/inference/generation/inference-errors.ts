/** What goes wrong on the way to an answer: a code for programs and a status for HTTP. */

import { type ErrorDetails, InferenceError } from '../../foundation/errors.ts'

/** The codes of `InferenceError`, with the HTTP status that tells each. */
export const inferenceStatus = {
  /** The queue has no room; to be tried again later. */
  queue_full: 429,
  /** The request's own time ran out, waiting or running. */
  request_timeout: 504,
  /** The engine did not answer in time. */
  engine_timeout: 504,
  /** The engine died, and the request could not be moved to another. */
  engine_lost: 503,
  /** No engine is ready yet, or none anymore. */
  not_ready: 503,
  /** The backend is closing. */
  closing: 503,
  /** The prompt and the answer do not fit into the model's context. */
  context_length_exceeded: 400,
  /** A rule of the guardrails rejected it. */
  content_filter: 400,
  /** The engine cannot do what was asked, such as a schema that it cannot enforce. */
  unsupported: 400,
  /** The engine answered against its contract. */
  EngineContractError: 500,
  /** The engine failed with this request. */
  engine_error: 500,
  /** The one who asked has left. */
  canceled: 499,
} as const satisfies Record<string, number>

export type InferenceErrorCode = keyof typeof inferenceStatus

/** An `InferenceError` with one of our codes. */
export function inferenceError(
  code: InferenceErrorCode,
  message: string,
  details: Omit<ErrorDetails, 'code'> = {},
): InferenceError {
  return new InferenceError(message, { ...details, code })
}

/** The code of an error, if it is one of ours. */
export function inferenceCodeOf(error: unknown): InferenceErrorCode | undefined {
  if (!InferenceError.isInstance(error) || !(error.code in inferenceStatus)) return undefined
  return error.code as InferenceErrorCode
}
