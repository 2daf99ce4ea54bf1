/** Exit codes, and the signals that stop a long-running command. */

import { CheckpointError, type TuttiError } from '../foundation/errors.ts'

export const exitCodes = {
  ok: 0,
  tasksFailed: 1,
  invalidRecord: 1,
  outputFailed: 1,
  usage: 2,
  backendFailed: 3,
} as const

const fullDiskErrors: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG'])
const readErrorCode = (error: unknown): unknown =>
  error instanceof Error && 'code' in error ? error.code : null

export const isFullDisk = (error: unknown): boolean => fullDiskErrors.has(readErrorCode(error))

/** Whether the disk is full or has failed. */
export const isDiskError = (error: unknown): boolean =>
  isFullDisk(error) || readErrorCode(error) === 'EIO'

/** Whether an output or a record could not be written because of the disk. */
export function isOutputFailure(error: TuttiError): boolean {
  if (error.code === 'OutputFileError') return isDiskError(error.cause)
  return CheckpointError.isInstance(error) && isFullDisk(error.cause)
}

/** The exit codes that shells use for a program that was ended by a signal. */
export const signalExitCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const

export type StopSignal = keyof typeof signalExitCodes
export const stopSignals = Object.keys(signalExitCodes) as StopSignal[]

/**
 * Calls `onFirst` with the first stop signal, or with `null` when results can no longer be written.
 * A second signal calls `onSecond`, or exits the process if `onSecond` is not given. A third signal
 * exits the process.
 */
export function onStopSignals(
  closed: AbortSignal,
  onFirst: (signal: StopSignal | null) => void,
  onSecond?: (signal: StopSignal) => void,
): { release(): void } {
  let count = 0
  const onSignal = (signal: StopSignal): void => {
    count++
    if (count === 1) onFirst(signal)
    else if (count === 2 && onSecond !== undefined) onSecond(signal)
    else process.exit(signalExitCodes[signal])
  }
  const onClosed = (): void => onFirst(null)
  for (const signal of stopSignals) process.on(signal, onSignal)
  closed.addEventListener('abort', onClosed)
  if (closed.aborted) onClosed()
  return {
    release() {
      for (const signal of stopSignals) process.off(signal, onSignal)
      closed.removeEventListener('abort', onClosed)
    },
  }
}

export interface CommandStop {
  /** Aborted by the first stop signal, or when results can no longer be written. */
  readonly signal: AbortSignal
  /** Resolves with the first stop signal, or with `null` when results cannot be written. */
  readonly received: Promise<StopSignal | null>
  exitCode(): Promise<number>
  release(): void
}

export function stopOnSignal(
  closed: AbortSignal,
  onSecond?: (signal: StopSignal) => void,
): CommandStop {
  const stop = new AbortController()
  const { promise: received, resolve } = Promise.withResolvers<StopSignal | null>()
  const onFirst = (name: StopSignal | null): void => {
    stop.abort()
    resolve(name)
  }
  return {
    signal: stop.signal,
    received,
    async exitCode() {
      const name = stop.signal.aborted ? await received : null
      return name === null ? exitCodes.ok : signalExitCodes[name]
    },
    ...onStopSignals(closed, onFirst, onSecond),
  }
}

/** Used by commands that do not follow a run. Signals end the process as usual. */
export const neverStop: Omit<CommandStop, 'received'> = {
  signal: new AbortController().signal,
  exitCode: async () => exitCodes.ok,
  release() {},
}
