/** Waits for the signal that asks a long-running command to stop. */

import { signalExitCodes, type StopSignal, stopSignals } from './exit-codes.ts'

export interface FirstSignal {
  readonly received: Promise<StopSignal>
  release(): void
}

/** The first signal resolves; a second one ends the process at once. */
export function firstSignal(): FirstSignal {
  const { promise, resolve } = Promise.withResolvers<StopSignal>()
  let isStopping = false
  const onSignal = (signal: StopSignal): void => {
    if (isStopping) process.exit(signalExitCodes[signal])
    isStopping = true
    resolve(signal)
  }
  for (const signal of stopSignals) process.on(signal, onSignal)
  return {
    received: promise,
    release() {
      for (const signal of stopSignals) process.off(signal, onSignal)
    },
  }
}
