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

/**
 * Limits the heap of a thread, so that its garbage is removed early: V8 lets a heap with a high
 * limit grow to several times its content. The columns of a run are outside the heap.
 */
export const smallHeap = {
  resourceLimits: { maxYoungGenerationSizeMb: 8, maxOldGenerationSizeMb: 600 },
} as const
