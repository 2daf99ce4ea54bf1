/** Converts whatever a task threw or a backend reported into the errors of tasks. */

import type { AttemptFacts, TaskReport } from '../backends/backend.ts'
import {
  messageOf,
  PoisonTaskError,
  TuttiError,
  withoutStack,
  WorkerLostError,
} from '../foundation/errors.ts'
import {
  errorTypeOf,
  ExecutableFailedError,
  TaskCanceledError,
  TaskFailedError,
} from '../foundation/task-errors.ts'
import type { ProgramOutput } from '../tasks/task-record.ts'
import type { Task } from '../tasks/task.ts'

export type FailReport = Extract<TaskReport, { readonly kind: 'fail' }>

/**
 * The error with which awaiting the task rejects; the original error is its cause. Never throws,
 * even if reading a property of the thrown value does.
 */
export function toTaskError({ uid }: Task, error: unknown): TuttiError {
  // If the function awaited another task that failed, that task's error is only the cause.
  const isOwn = isA(error, TaskFailedError) && read(() => error.uid) === uid
  if (isOwn) return error
  const text = `task ${uid} failed: ${errorTypeOf(error)}: ${messageOf(error)}`
  const hint = isA(error, TuttiError) ? read(() => error.hint) : undefined
  const details = { uid, cause: error, ...(hint === undefined ? {} : { hint }) }
  return withoutStack(() => new TaskFailedError(text, details))
}

export const toCancelError = ({ uid }: Task, reason: string): TaskCanceledError =>
  withoutStack(() => new TaskCanceledError(uid, reason))

/**
 * The facts of a report. Includes the output of a program that succeeded, because a task that was
 * canceled meanwhile has no value to hold it.
 */
export function factsOf(report: Exclude<TaskReport, { kind: 'start' }>): AttemptFacts | undefined {
  const value = report.kind === 'complete' ? report.value : null
  const { stdout, stderr } = (value ?? none) as ProgramOutput
  const isOutput = typeof stdout === 'string' && typeof stderr === 'string'
  return isOutput ? { ...report.facts, stdout, stderr } : report.facts
}

const none: Readonly<Record<string, never>> = Object.freeze({})

/** The output of a program that did not succeed; some backends report it only in the error. */
export const outputOf = (
  facts: AttemptFacts | undefined,
  error: unknown,
): { readonly output?: ProgramOutput } => read(() => readOutput(facts, error)) ?? none

function readOutput(
  facts: AttemptFacts | undefined,
  error: unknown,
): { readonly output?: ProgramOutput } {
  const isReported = facts?.stdout !== undefined || !isA(error, ExecutableFailedError)
  const known = isReported ? facts : error
  if (known === undefined) return none
  const { stdout, stderr, stdoutTruncated, stderrTruncated } = known
  const exitCode = known.exitCode ?? undefined
  if (stdout === undefined && exitCode === undefined) return none
  return {
    output: {
      ...(exitCode === undefined ? {} : { exitCode }),
      ...(stdout === undefined ? {} : { stdout }),
      ...(stderr === undefined ? {} : { stderr }),
      ...(stdoutTruncated === undefined ? {} : { stdoutTruncated }),
      ...(stderrTruncated === undefined ? {} : { stderrTruncated }),
    },
  }
}

/**
 * Whether the task may have crashed its worker. Excludes errors that the task's own code threw,
 * whatever their class, and lost nodes.
 */
export const isWorkerLoss = ({ error, isThrown }: FailReport): boolean =>
  isThrown !== true && isA(error, WorkerLostError) && read(() => error.code) !== 'NodeLostError'

/** A task that has lost this many workers is not retried. */
const poisonLimit = 3

export const isPoisonous = (workersLost: number): boolean => workersLost >= poisonLimit

export function toPoisonError(workersLost: number, last: unknown): PoisonTaskError {
  const text = `ran on ${workersLost} workers, which all died; the last one: ${messageOf(last)}`
  return new PoisonTaskError(text, {
    cause: last,
    hint: 'The task itself ends its workers: look at its memory, its native code and its exits.',
  })
}

/** `instanceof` that returns `false` if reading the value's prototype throws. */
const isA = <T>(value: unknown, errorClass: abstract new (...args: never[]) => T): value is T =>
  read(() => value instanceof errorClass) === true

/** `undefined` if reading throws. */
function read<T>(get: () => T): T | undefined {
  try {
    return get()
  } catch {
    return undefined
  }
}

const reportKinds = new Set<unknown>(['start', 'complete', 'fail', 'cancel'])

/** Checked at run time, because third-party backends may not be type-checked. */
export function expectReport({ kind }: { readonly kind: unknown }): void {
  if (!reportKinds.has(kind)) throw new TypeError(`unknown kind of report: ${String(kind)}`)
}
