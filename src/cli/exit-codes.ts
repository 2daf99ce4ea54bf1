/** What a command's exit code says. */

export const exitCodes = { ok: 0, unsound: 1, outputFailed: 1, usage: 2 } as const

/** The codes that shells expect of a program that a signal ended. */
export const signalExitCodes = { SIGHUP: 129, SIGINT: 130, SIGTERM: 143 } as const

export type StopSignal = keyof typeof signalExitCodes
export const stopSignals = Object.keys(signalExitCodes) as StopSignal[]
