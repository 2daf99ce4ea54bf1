/** The end of a whole process group: asked for, then enforced. */

import { type Clock, sleep } from '../../../foundation/clock.ts'
import { isGroupAlive, signalGroup } from '../../../runtime/process-group.ts'

const shortestLookMs = 10
const longestLookMs = 200
/** How long killed processes may take to be gone: those that wait for a disk may take for ever. */
const burialMs = 5000

/**
 * SIGTERM to every member, after the grace SIGKILL; without a grace SIGKILL at once. Resolves when
 * none of them runs any more.
 */
export async function endGroup(clock: Clock, pid: number, graceMs: number): Promise<void> {
  if (graceMs > 0) {
    signalGroup(pid, 'SIGTERM')
    if (await isGoneWithin(clock, pid, graceMs)) return
  }
  signalGroup(pid, 'SIGKILL')
  await isGoneWithin(clock, pid, burialMs)
}

async function isGoneWithin(clock: Clock, pid: number, ms: number): Promise<boolean> {
  const start = clock.monotonicMs()
  for (let pauseMs = shortestLookMs; isGroupAlive(pid);) {
    if (clock.monotonicMs() - start >= ms) return false
    await sleep(clock, pauseMs)
    pauseMs = Math.min(pauseMs * 2, longestLookMs)
  }
  return true
}
