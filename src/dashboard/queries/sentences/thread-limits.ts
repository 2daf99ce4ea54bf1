/** Lets a thread of the dashboard give way to the run, and take little memory. */

import { constants, setPriority } from 'node:os'

/**
 * Gives this thread the lowest priority. Does nothing except on Linux: elsewhere, only processes
 * have priorities. Threads that are started later inherit the priority. The threads of libuv, which
 * start when a file is read, keep theirs if a file was read before this call.
 */
export function lowerPriority(): void {
  if (process.platform === 'linux') setPriority(constants.priority.PRIORITY_LOW)
}

/** The garbage of a thread is removed before it takes more than a few megabytes. */
export const smallHeap = {
  resourceLimits: { maxYoungGenerationSizeMb: 8 },
} as const
