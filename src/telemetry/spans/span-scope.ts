/** Spans that the application opens around its own code, and those of workflows. */

import type { SpanAnnotation } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { messageOf } from '../../foundation/errors.ts'
import { isThenable } from '../../foundation/promises.ts'

/** An open span of the application's own. */
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

/** `onEnd` is called once, when `callback` returned, threw or settled. */
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
  // An unhandled rejection must stay one.
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
