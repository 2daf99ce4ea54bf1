/**
 * Which span the running code is inside of: a scope that it opened, or the task that it runs in.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { messageOf } from '../../foundation/errors.ts'
import { isThenable } from '../../foundation/promises.ts'
import { currentTask } from '../../foundation/task-context.ts'

/** An open span of the application's own. */
export interface ScopeSpan {
  readonly spanId: string
  readonly parentSpanId: string
  readonly name: string
  readonly startTime: number
  readonly attributes: JsonObject
  readonly annotations: SpanAnnotation[]
  /** The book that it belongs to; several managers may be at work in one process. */
  readonly owner: object
}

interface ActiveScope {
  readonly scope: ScopeSpan
  /** The one that it was opened in, perhaps of another owner. */
  readonly outer: ActiveScope | undefined
  /** The task that was running when the scope opened: a later task inside it hides the scope. */
  readonly task: string | undefined
}

const active = new AsyncLocalStorage<ActiveScope>()

/** The innermost open scope of `owner`, unless a task was entered inside it. */
export function activeScope(owner: object): ScopeSpan | undefined {
  let found = active.getStore()
  while (found !== undefined && found.scope.owner !== owner) found = found.outer
  return found?.task === currentTask() ? found?.scope : undefined
}

/** Runs `callback` inside the scope; `onEnd` is called once, when it returned, threw or settled. */
export function runInScope<T>(
  scope: ScopeSpan,
  callback: () => T,
  onEnd: (failure: string | null) => void,
): T {
  let result: T
  try {
    result = active.run({ scope, outer: active.getStore(), task: currentTask() }, callback)
  } catch (error) {
    onEnd(messageOf(error))
    throw error
  }
  const succeed = <V>(value: V): V => {
    onEnd(null)
    return value
  }
  if (!isThenable(result)) return succeed(result)
  // A failure that nobody handles must stay one.
  if (result instanceof Promise) {
    return result.then(succeed, (error: unknown) => {
      onEnd(messageOf(error))
      throw error
    }) as T
  }
  // A task, say, which is more than a promise: the caller gets it back as it is.
  result.then(succeed, (error: unknown) => onEnd(messageOf(error)))
  return result
}

export function toScopeSpan(
  scope: ScopeSpan,
  traceId: string,
  time: number,
  failure: string | null,
): FinishedSpan {
  const endTime = Math.max(time, scope.startTime)
  return {
    name: scope.name,
    span_id: scope.spanId,
    trace_id: traceId,
    parent_span_id: scope.parentSpanId,
    start_time: scope.startTime,
    end_time: endTime,
    duration_ms: (endTime - scope.startTime) * 1000,
    status_code: failure === null ? 'UNSET' : 'ERROR',
    status_description: failure,
    attributes: scope.attributes,
    events: scope.annotations,
  }
}
