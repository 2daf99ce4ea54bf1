/**
 * The use of a backend whose nodes do not report how many tasks they run at a time, such as a model
 * server. Such a backend has no slots, only times in which it was busy and times in which tasks
 * waited.
 */

import { applyInOrder, TimeStream } from './classes/time-streams.ts'
import type { SlotActivity } from './slots.ts'

export interface UnsizedUse {
  readonly backend: string
  /** Whether the backend's tasks are prompts. */
  readonly isModel: boolean
  readonly busySeconds: number
  /** Seconds in which a task ran while another task was ready. */
  readonly waitedSeconds: number
  readonly maxConcurrent: number
  readonly workSeconds: number
}

export function measureUnsizedUse({
  uses,
  waits,
  from,
  to,
}: Pick<SlotActivity, 'uses' | 'waits' | 'from' | 'to'>): Omit<UnsizedUse, 'backend' | 'isModel'> {
  const sums = { busySeconds: 0, waitedSeconds: 0, maxConcurrent: 0, workSeconds: 0 }
  let [now, running, waiting] = [from, 0, 0]
  const streams = [
    new TimeStream(uses.to, () => running--),
    new TimeStream(waits.from, () => waiting++),
    new TimeStream(waits.to, () => waiting--),
    new TimeStream(uses.from, () => {
      running++
      sums.maxConcurrent = Math.max(sums.maxConcurrent, running)
    }),
  ]
  applyInOrder(streams, to, (time) => {
    const seconds = Math.max(0, time - now)
    if (running > 0) sums.busySeconds += seconds
    if (running > 0 && waiting > 0) sums.waitedSeconds += seconds
    sums.workSeconds += running * seconds
    now = Math.max(now, time)
  })
  return sums
}
