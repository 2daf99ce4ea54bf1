/** How commands end: exit codes, and the signals that stop a long-running command. */

import { CheckpointError, type TuttiError } from '../foundation/errors.ts'

export const exitCodes = {
  ok: 0,
  tasksFailed: 1,
  unsound: 1,
  outputFailed: 1,
  usage: 2,
  backendFailed: 3,
} as const

const fullDiskErrors: ReadonlySet<unknown> = new Set(['ENOSPC', 'EDQUOT', 'EFBIG'])
const codeOf = (error: unknown): unknown =>
  error instanceof Error && 'code' in error ? error.code : null

/** Whether the disk is full, so that the error is not one of usage. */
export const isFullDisk = (error: unknown): boolean => fullDiskErrors.has(codeOf(error))

/** Whether the disk is full, or a device failed, which can also affect reading. */
export const isDiskError = (error: unknown): boolean => isFullDisk(error) || codeOf(error) === 'EIO'

/** Whether the disk prevented writing output, a record or a copy. Failed reads are usage errors. */
export function isOutputFailure(error: TuttiError): boolean {
  if (error.code === 'OutputFileError') return isDiskError(error.cause)
  return CheckpointError.isInstance(error) && isFullDisk(error.cause)
}

/** The exit codes that shells use for a program ended by a signal. */
export const signalExitCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const

export type StopSignal = keyof typeof signalExitCodes
export const stopSignals = Object.keys(signalExitCodes) as StopSignal[]

export interface FirstSignal {
  /** The signal, or `null` when results can no longer be written. */
  readonly received: Promise<StopSignal | null>
  release(): void
}

/**
 * Calls `onFirst` with the first stop signal, or with `null` when results can no longer be written.
 * A second signal exits the process at once, unless `onSecond` is given; then a third one does.
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

/** Like `onStopSignals`, with a promise instead of `onFirst`. */
export function firstSignal(
  closed: AbortSignal,
  onSecond?: (signal: StopSignal) => void,
): FirstSignal {
  const { promise, resolve } = Promise.withResolvers<StopSignal | null>()
  return { received: promise, ...onStopSignals(closed, resolve, onSecond) }
}

/** Stops a command that follows a run. */
export interface CommandStop {
  /** Aborted by the first stop signal, or when results can no longer be written. */
  readonly signal: AbortSignal
  exitCode(): Promise<number>
  release(): void
}

export function stopOnSignal(closed: AbortSignal): CommandStop {
  const first = firstSignal(closed)
  const stop = new AbortController()
  const received = first.received.then((name) => {
    stop.abort()
    return name
  })
  return {
    signal: stop.signal,
    async exitCode() {
      const name = stop.signal.aborted ? await received : null
      return name === null ? exitCodes.ok : signalExitCodes[name]
    },
    release: () => first.release(),
  }
}

/** For a command that follows nothing: signals end the process as usual. */
export const stopNever: CommandStop = {
  signal: new AbortController().signal,
  exitCode: async () => exitCodes.ok,
  release() {},
}
