/** Spans that the application opens around its own code, and spans of workflows. */

import type { SpanAnnotation } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { messageOf } from '../../foundation/errors.ts'
import { isThenable } from '../../foundation/promises.ts'

export interface ScopeSpan {
  readonly spanId: string
  readonly traceId: string
  readonly parentSpanId: string
  readonly name: string
  readonly startTime: number
  attributes: JsonObject
  readonly annotations: SpanAnnotation[]
  hasEnded: boolean
}

/**
 * Calls `callback`, and calls `onEnd` once: when `callback` has thrown or returned, or, if it has
 * returned a promise, when the promise has settled.
 */
export function runUntilSettled<T>(callback: () => T, onEnd: (failure: string | null) => void): T {
  let result: T
  try {
    result = callback()
  } catch (error) {
    onEnd(messageOf(error))
    throw error
  }
  const succeed = <V>(value: V): V => {
    onEnd(null)
    return value
  }
  if (!isThenable(result)) return succeed(result)
  // Returns the derived promise, so that an unhandled rejection stays unhandled.
  if (result instanceof Promise) {
    return result.then(succeed, (error: unknown) => {
      onEnd(messageOf(error))
      throw error
    }) as T
  }
  // Another thenable, such as a task, is returned unchanged.
  result.then(succeed, (error: unknown) => onEnd(messageOf(error)))
  return result
}
