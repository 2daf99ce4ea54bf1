/** Lets a thread of the dashboard give way to the run. */

import { constants, setPriority } from 'node:os'

/**
 * Gives this thread the lowest priority. Does nothing except on Linux: elsewhere, only processes
 * have priorities. New threads inherit it, so call it after a first reading has started libuv's.
 */
export function lowerPriority(): void {
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW)
}
