/** The errors with which an awaited task rejects. Cancellation is not a failure. */

import {
  type ErrorDetails,
  registerErrorClasses,
  tryRead,
  TuttiError,
  ValueError,
} from './errors.ts'

/** The uid of the failed task, in addition to the details of every error. */
export interface TaskErrorDetails extends ErrorDetails {
  readonly uid: string
}

/** The task failed; `cause` is the original error, with its name, message and stack. */
export class TaskFailedError extends TuttiError {
  readonly uid: string

  constructor(message: string, details: TaskErrorDetails) {
    super(message, details)
    this.uid = details.uid
  }
}

/** How the program ended, and the last part of its output. */
export interface ExecutableFailedDetails extends TaskErrorDetails {
  readonly exitCode: number | null
  readonly signal: string | null
  /** The last part of stdout. Default: empty. */
  readonly stdout?: string
  readonly stderr: string
  /** `true` if part of stdout is missing; otherwise absent. */
  readonly stdoutTruncated?: true
  readonly stderrTruncated?: true
  /** For an MPI program: the rank that failed. */
  readonly rank?: number
}

/** The program exited with a non-zero code, or was ended by a signal. */
export class ExecutableFailedError extends TaskFailedError {
  readonly exitCode: number | null
  readonly signal: string | null
  /** At most the last 16 KiB of stdout. `task.stdout` may contain more. */
  readonly stdout: string
  /** At most the last 16 KiB of stderr. `task.stderr` may contain more. */
  readonly stderr: string
  /** `true` if the program wrote more to stdout than `stdout` contains. */
  readonly stdoutTruncated?: true
  /** `true` if the program wrote more to stderr than `stderr` contains. */
  readonly stderrTruncated?: true
  /** For an MPI program: the first rank that failed. */
  readonly rank?: number

  constructor(message: string, details: ExecutableFailedDetails) {
    super(message, details)
    this.exitCode = details.exitCode
    this.signal = details.signal
    this.stdout = details.stdout ?? ''
    this.stderr = details.stderr
    if (details.stdoutTruncated === true) this.stdoutTruncated = true
    if (details.stderrTruncated === true) this.stderrTruncated = true
    if (details.rank !== undefined) this.rank = details.rank
  }
}

/** The program does not exist. The hint says where it was looked up. */
export class ExecutableNotFoundError extends TuttiError {}

/** The path is a folder, a file without execute permission, or a file that is not a program. */
export class ExecutableNotPermittedError extends TuttiError {}

/** The working directory does not exist. */
export class CwdNotFoundError extends TuttiError {}

/** A file of `captureStdio` cannot be written. */
export class OutputFileError extends TuttiError {}

/** The system refused to start the program for a reason that has no error class of its own. */
export class SpawnError extends TuttiError {}

/** An argument cannot be sent to a worker. `field` is its path, such as `args[1].callback`. */
export class ArgumentNotSerializableError extends ValueError {}

/** A function's result cannot be sent back. `field` is the path of the offending part. */
export class ResultNotSerializableError extends ValueError {}

/** A worker cannot import a function's module, or the module does not define the function. */
export class TaskImportError extends ValueError {}

/** Thrown by `await task` if the task was canceled. */
export class TaskCanceledError extends TuttiError {
  readonly uid: string
  readonly reason: string

  constructor(uid: string, reason: string) {
    super(`task ${uid} was canceled: ${reason}`)
    this.uid = uid
    this.reason = reason
  }
}

registerErrorClasses({
  TaskFailedError,
  ExecutableFailedError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  CwdNotFoundError,
  OutputFileError,
  SpawnError,
  ArgumentNotSerializableError,
  ResultNotSerializableError,
  TaskImportError,
  TaskCanceledError,
})

/**
 * The `error_type` of a failure: the constructor's name, otherwise the error's `name`, otherwise
 * "unknown". Accepts any thrown value, even `null`, strings and objects with throwing getters.
 */
export function errorTypeOf(thrown: unknown): string {
  if (typeof thrown !== 'object' || thrown === null) return 'unknown'
  const built = readName(() => thrown.constructor.name)
  // The name of a plain object's constructor is not informative.
  if (built !== undefined && built !== 'Object') return built
  return readName(() => (thrown as { name?: unknown }).name) ?? 'unknown'
}

function readName(read: () => unknown): string | undefined {
  const name = tryRead(read)
  return typeof name === 'string' && name !== '' ? name : undefined
}
