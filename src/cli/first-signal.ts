/** Waits for what asks a long-running command to stop. */

import { signalExitCodes, type StopSignal, stopSignals } from './exit-codes.ts'

export interface FirstSignal {
  /** `null` when results can no longer be written. */
  readonly received: Promise<StopSignal | null>
  release(): void
}

/** The first signal resolves; a second one ends the process at once. */
export function firstSignal(closed: AbortSignal): FirstSignal {
  const { promise, resolve } = Promise.withResolvers<StopSignal | null>()
  let isStopping = false
  const onSignal = (signal: StopSignal): void => {
    if (isStopping) process.exit(signalExitCodes[signal])
    isStopping = true
    resolve(signal)
  }
  const onClosed = (): void => resolve(null)
  for (const signal of stopSignals) process.on(signal, onSignal)
  closed.addEventListener('abort', onClosed)
  if (closed.aborted) onClosed()
  return {
    received: promise,
    release() {
      for (const signal of stopSignals) process.off(signal, onSignal)
      closed.removeEventListener('abort', onClosed)
    },
  }
}
