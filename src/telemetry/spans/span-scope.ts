/** Which span the running code is in: a scope that it opened, or the task that it runs in. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { SpanAnnotation } from '../../checkpoint/format.ts'
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
  /** The span book that it belongs to; a process may have several managers. */
  readonly owner: object
}

interface ActiveScope {
  readonly scope: ScopeSpan
  /** The scope that it was opened in, possibly of another owner. */
  readonly outer: ActiveScope | undefined
  /** The task that was running when the scope opened: a task that starts inside it hides it. */
  readonly task: string | undefined
}

const active = new AsyncLocalStorage<ActiveScope>()

/** The innermost open scope of `owner`, unless a task was entered inside it. */
export function activeScope(owner: object): ScopeSpan | undefined {
  let found = active.getStore()
  while (found !== undefined && found.scope.owner !== owner) found = found.outer
  return found?.task === currentTask()?.uid ? found?.scope : undefined
}

/** Runs `callback` inside the scope; `onEnd` is called once, when it returned, threw or settled. */
export function runInScope<T>(
  scope: ScopeSpan,
  callback: () => T,
  onEnd: (failure: string | null) => void,
): T {
  let result: T
  try {
    result = active.run({ scope, outer: active.getStore(), task: currentTask()?.uid }, callback)
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
