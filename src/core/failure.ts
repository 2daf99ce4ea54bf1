/** Converts thrown values and reports of backends to the errors of tasks. */

import type { AttemptFacts, TaskReport } from '../backends/backend.ts'
import {
  messageOf,
  PoisonTaskError,
  tryRead,
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
import { definedFields } from '../foundation/options.ts'
import type { ProgramOutput } from '../tasks/task-record.ts'
import type { Task } from '../tasks/task.ts'

export type FailReport = Extract<TaskReport, { readonly kind: 'fail' }>

/**
 * The error with which an `await` of the task rejects. The original error is its cause. Never
 * throws, even if reading a property of the thrown value does.
 */
export function toTaskError({ uid }: Task, error: unknown): TuttiError {
  // If the function awaited another task that failed, that task's error becomes only the cause.
  const isOwn = isInstanceOf(error, TaskFailedError) && tryRead(() => error.uid) === uid
  if (isOwn) return error
  const text = `task ${uid} failed: ${errorTypeOf(error)}: ${messageOf(error)}`
  const hint = isInstanceOf(error, TuttiError) ? tryRead(() => error.hint) : undefined
  const details = { uid, cause: error, ...(hint === undefined ? {} : { hint }) }
  return withoutStack(() => new TaskFailedError(text, details))
}

export const toCancelError = ({ uid }: Task, reason: string): TaskCanceledError =>
  withoutStack(() => new TaskCanceledError(uid, reason))

/**
 * The facts of a report. Includes the output of a program that succeeded, because a task that was
 * canceled in the meantime has no value to hold it.
 */
export function toAttemptFacts(
  report: Exclude<TaskReport, { kind: 'start' }>,
): AttemptFacts | undefined {
  const value = report.kind === 'complete' ? report.value : null
  const { stdout, stderr } = (value ?? noOutput) as ProgramOutput
  const isOutput = typeof stdout === 'string' && typeof stderr === 'string'
  return isOutput ? { ...report.facts, stdout, stderr } : report.facts
}

const noOutput: Readonly<Record<string, never>> = Object.freeze({})

/** The output of a program that did not succeed; some backends report it only in the error. */
export const findOutput = (
  facts: AttemptFacts | undefined,
  error: unknown,
): { readonly output?: ProgramOutput } => tryRead(() => readOutput(facts, error)) ?? noOutput

function readOutput(
  facts: AttemptFacts | undefined,
  error: unknown,
): { readonly output?: ProgramOutput } {
  const isReported = facts?.stdout !== undefined || !isInstanceOf(error, ExecutableFailedError)
  const known = isReported ? facts : error
  if (known === undefined) return noOutput
  const { stdout, stderr, stdoutTruncated, stderrTruncated } = known
  const exitCode = known.exitCode ?? undefined
  if (stdout === undefined && exitCode === undefined) return noOutput
  return { output: definedFields({ exitCode, stdout, stderr, stdoutTruncated, stderrTruncated }) }
}

/**
 * Whether the task may have crashed its worker. Excludes errors that the task's own code threw,
 * whatever their class, and lost nodes.
 */
export const isWorkerLoss = ({ error, isThrown }: FailReport): boolean =>
  isThrown !== true &&
  isInstanceOf(error, WorkerLostError) &&
  tryRead(() => error.code) !== 'NodeLostError'

const poisonLimit = 3

export const isPoisonous = (workersLost: number): boolean => workersLost >= poisonLimit

export function toPoisonError(workersLost: number, last: unknown): PoisonTaskError {
  const text = `ran on ${workersLost} workers, which all died; the last one: ${messageOf(last)}`
  return new PoisonTaskError(text, {
    cause: last,
    hint: 'The task probably crashes its worker: check its memory, native code and process.exit().',
  })
}

/** `instanceof` that returns `false` if reading the value's prototype throws. */
const isInstanceOf = <T>(
  value: unknown,
  errorClass: abstract new (...args: never[]) => T,
): value is T => tryRead(() => value instanceof errorClass) === true

const reportKinds = new Set<unknown>(['start', 'complete', 'fail', 'cancel'])

/** Checked at run time, because third-party backends may not be type-checked. */
export function expectReport({ kind }: { readonly kind: unknown }): void {
  if (!reportKinds.has(kind)) throw new TypeError(`unknown kind of report: ${String(kind)}`)
}
