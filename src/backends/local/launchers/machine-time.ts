/** The one clock that all processes of a machine share; only differences mean something. */

/** Milliseconds of the system's monotonic clock. */
export const machineMs = (): number => Number(process.hrtime.bigint()) / 1e6
