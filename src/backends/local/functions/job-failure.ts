/** Creates the errors of jobs that failed in a worker or lost their worker. */

import {
  type ErrorDetails,
  messageOf,
  TimeoutError,
  type TuttiError,
  WorkerLostError,
} from '../../../foundation/errors.ts'
import { ResultNotSerializableError, TaskImportError } from '../../../foundation/task-errors.ts'
import type { AttemptFacts, Job, TaskReport } from '../../backend.ts'
import { cloningHint } from './cloning.ts'
import { fromErrorRecord } from '../../../foundation/error-record.ts'
import type { WorkerExit, WorkerMessage } from './protocol.ts'

/** Why a worker was lost, and the error that caused it. */
export interface WorkerLoss {
  readonly reason: string
  readonly cause?: unknown
}

/**
 * Creates the error of a failed job: the error that the function threw, or an error about its
 * module or result.
 */
export function toJobError(
  job: Job,
  message: Extract<WorkerMessage, { kind: 'failure' }>,
): unknown {
  const cause = fromErrorRecord(message.error)
  if (message.failure === 'thrown') return cause
  if (message.failure === 'result') {
    const field = message.field ?? 'return_value'
    const text = `${field} cannot be sent back by the worker: ${messageOf(cause)}`
    return new ResultNotSerializableError(text, {
      field,
      expected: 'a value that can be cloned',
      hint: cloningHint,
      cause,
    })
  }
  return importError(job, `failed: ${messageOf(cause)}`, {
    hint:
      'Call `defineTask(import.meta.url, function name() {})` in a module of its own, and leave ' +
      'that module out of bundles, which rename functions.',
    cause,
  })
}

/**
 * Creates the error of a job that exceeded its time limit, or whose module took too long to import.
 * Returns `null` if the job is within its limits.
 */
export function overtimeError(
  { job, startedMs }: { readonly job: Job; readonly startedMs: number | null },
  elapsedMs: number,
  importTimeoutSeconds: number,
): TuttiError | null {
  const isImporting = startedMs === null
  const seconds = isImporting ? importTimeoutSeconds : job.spec.timeoutSeconds
  if (seconds === null || elapsedMs < seconds * 1000) return null
  if (!isImporting) return new TimeoutError(`task ${job.uid} ran longer than ${seconds} s`)
  return importError(job, `was not imported within ${seconds} s`, {
    hint: 'Raise `importTimeoutSeconds` of `ConcurrentBackend.create`, or do less at import.',
  })
}

function importError(job: Job, what: string, details: ErrorDetails): TaskImportError {
  const module = job.spec.kind === 'function' ? job.spec.definition.module : undefined
  return new TaskImportError(`the module ${module} of task ${job.uid} ${what}`, {
    field: 'function',
    expected: 'a function that a worker can import',
    ...details,
  })
}

export const notBegunError = (job: Job, workers: number): WorkerLostError =>
  new WorkerLostError(`${workers} workers in turn did not begin task ${job.uid}`, {
    hint: 'Its arguments may be too large or too deep for a worker.',
  })

export function toLostReport(
  job: Job,
  worker: AttemptFacts & { readonly workerId: string },
  exit: WorkerExit,
  loss: WorkerLoss,
): TaskReport {
  const facts = {
    ...worker,
    ...(exit.signal === undefined ? {} : { signal: exit.signal }),
    ...(exit.code === undefined || exit.signal !== undefined ? {} : { exitCode: exit.code }),
  }
  return { kind: 'fail', error: lostError(job, worker.workerId, exit, loss), facts }
}

function lostError(job: Job, workerId: string, exit: WorkerExit, loss: WorkerLoss): TuttiError {
  const message = `worker ${workerId} was lost while it ran task ${job.uid}: ${loss.reason}`
  if (isOutOfMemory(exit.error)) {
    return new WorkerLostError(message, {
      code: 'WorkerOutOfMemoryError',
      hint: 'Raise `workerMemoryMb` of `ConcurrentBackend.create`, or let a task hold less.',
      cause: exit.error,
    })
  }
  return new WorkerLostError(message, 'cause' in loss ? { cause: loss.cause } : {})
}

export function toWorkerLoss(exit: WorkerExit): WorkerLoss {
  if (exit.abandonedCount !== undefined) return abandonedLoss(exit.abandonedCount)
  if (isOutOfMemory(exit.error)) return { reason: 'out of memory', cause: exit.error }
  if (exit.error !== undefined) return { reason: messageOf(exit.error), cause: exit.error }
  if (exit.signal === 'SIGABRT') return { reason: 'ended by SIGABRT: often out of memory' }
  if (exit.signal === 'SIGKILL') return { reason: 'ended by SIGKILL: often out of memory' }
  if (exit.signal !== undefined) return { reason: `ended by ${exit.signal}` }
  return { reason: `it exited with code ${exit.code ?? 'unknown'}` }
}

/** Warns that this process cannot exit: `process.exit()` waits for threads in native code. */
const abandonedLoss = (count: number): WorkerLoss => ({
  reason:
    'it could not be ended, because it is in native code; ' +
    `workers left behind in this state: ${count}; this process can exit only when they return`,
})

const isOutOfMemory = (error: unknown): boolean =>
  error instanceof Error && 'code' in error && error.code === 'ERR_WORKER_OUT_OF_MEMORY'
