/** The errors of tasks that fail or are canceled, whatever was thrown. */

import type { TaskReport } from '../backends/backend.ts'
import {
  messageOf,
  PoisonTaskError,
  type TuttiError,
  withoutStack,
  WorkerLostError,
} from '../foundation/errors.ts'
import { errorTypeOf, TaskCanceledError, TaskFailedError } from '../foundation/task-errors.ts'
import type { Task } from '../tasks/task.ts'

type FailReport = Extract<TaskReport, { readonly kind: 'fail' }>

/** What awaiting the task rejects with; the original error is the cause. */
export function toTaskError({ uid }: Task, error: unknown): TuttiError {
  // The error of another task, thrown by a function that awaited it, is only a cause.
  if (isA(error, TaskFailedError) && error.uid === uid) return error
  const text = `task ${uid} failed: ${errorTypeOf(error)}: ${messageOf(error)}`
  return withoutStack(() => new TaskFailedError(text, { uid, cause: error }))
}

export const toCancelError = ({ uid }: Task, reason: string): TaskCanceledError =>
  withoutStack(() => new TaskCanceledError(uid, reason))

/**
 * What the task's own code threw is no lost worker, whatever its class. A lost node says nothing
 * about the task either.
 */
export const isWorkerLoss = ({ error, isThrown }: FailReport): boolean =>
  isThrown !== true && isA(error, WorkerLostError) && error.code !== 'NodeLostError'

/** A task that has killed this many workers is not retried. */
const poisonLimit = 3

export const isPoisonous = (workersLost: number): boolean => workersLost >= poisonLimit

export function toPoisonError(workersLost: number, last: unknown): PoisonTaskError {
  const text = `ran on ${workersLost} workers, all died; last: ${messageOf(last)}`
  return new PoisonTaskError(text, {
    cause: last,
    hint: 'The task itself ends its workers: look at its memory, its native code and its exits.',
  })
}

/** `instanceof` for a value whose prototype may throw when it is read. */
function isA<T>(value: unknown, errorClass: abstract new (...args: never[]) => T): value is T {
  try {
    return value instanceof errorClass
  } catch {
    return false
  }
}
