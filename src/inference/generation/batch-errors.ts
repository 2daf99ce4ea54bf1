/** How a request ends without an answer: the batcher's words for each case. */

import { messageOf } from '../../foundation/errors.ts'
import type { GenerationEnd } from './inference-engine.ts'
import { inferenceCodeOf, inferenceError, type InferenceErrorCode } from './inference-errors.ts'

/** An end with one of our codes. */
export function failed(code: InferenceErrorCode, message: string): GenerationEnd {
  return { kind: 'failed', error: inferenceError(code, message) }
}

/** Its own time ran out. */
export function timedOut(timeoutMs: number): GenerationEnd {
  return failed('request_timeout', `no answer within ${timeoutMs / 1000} s`)
}

/** The engine broke its word. */
export function contractBroken(what: string): GenerationEnd {
  return failed('EngineContractError', `the engine broke its contract: it ${what}`)
}

/** Keeps an error that has one of our codes; any other becomes the cause of an `engine_error`. */
export function engineFailed(error: unknown): GenerationEnd {
  if (inferenceCodeOf(error) !== undefined) return { kind: 'failed', error }
  const message = `the engine failed: ${messageOf(error)}`
  return { kind: 'failed', error: inferenceError('engine_error', message, { cause: error }) }
}
