/** Finds out whether other programs used the cores while this process was computing. */

import { readdirSync } from 'node:fs'
import { tryRead } from '../../../../foundation/errors.ts'
import { readTextFileSync } from '../../../../foundation/regular-file.ts'

/** The times of all threads of a process in nanoseconds. */
export interface CoreTime {
  readonly used: number
  /** How long the threads waited for a core. */
  readonly waited: number
}

/** The part of the used time from which on other programs disturb a measurement. */
const maxWaitedPart = 0.1

/** Returns `null` where the system does not tell. */
export function readCoreTime(tasks = '/proc/self/task'): CoreTime | null {
  const threads = tryRead(() => readdirSync(tasks)) ?? []
  let [used, waited] = [0, 0]
  for (const thread of threads) {
    const text = tryRead(() => readTextFileSync(`${tasks}/${thread}/schedstat`))
    const [usedByThread = 0, waitedByThread = 0] = text?.split(' ').map(Number) ?? []
    used += usedByThread
    waited += waitedByThread
  }
  return used === 0 ? null : { used, waited }
}

export function hasWaited(before: CoreTime | null, after: CoreTime | null): boolean {
  if (before === null || after === null) return false
  return after.waited - before.waited > (after.used - before.used) * maxWaitedPart
}
