/** Lets a thread of the dashboard give way to the run. */

import { constants, setPriority } from 'node:os'

/**
 * Gives this thread the lowest priority, on Linux; elsewhere, priorities are those of processes.
 * Threads that it starts inherit it, so the threads of libuv must exist, as after a first reading.
 */
export function lowerPriority(): void {
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW)
}
