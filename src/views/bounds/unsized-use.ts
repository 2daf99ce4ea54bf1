/**
 * The use of a backend whose nodes do not report how many tasks they run at a time, such as a model
 * server. It has no slots, only times in which it was busy and in which tasks waited.
 */

import { earliestOf, TimeStream } from './classes/time-streams.ts'
import type { SlotRun } from './slots.ts'

export interface TimeRange {
  readonly from: number
  readonly to: number
}

interface TimesOfUse {
  /** Seconds in which at least one task of the backend ran. */
  readonly busySeconds: number
  /** Seconds in which one task ran while another was ready. */
  readonly waitedSeconds: number
  readonly maxAtOnce: number
  /** The sum of the seconds of all attempts. */
  readonly workSeconds: number
  /** The mean time from being ready to the start, over tasks that had to wait. */
  readonly meanWait: number
}

export interface UnsizedUse extends TimesOfUse {
  readonly backend: string
  /** Whether the backend's tasks are prompts. */
  readonly isModel: boolean
}

export function useOf(run: Pick<SlotRun, 'uses' | 'waits'> & TimeRange): TimesOfUse {
  const { uses, waits, from, to } = run
  const sums = { busySeconds: 0, waitedSeconds: 0, maxAtOnce: 0, workSeconds: 0 }
  let [now, running, waiting] = [from, 0, 0]
  const advance = (time: number): void => {
    const passed = Math.max(0, Math.min(time, to) - now)
    if (running > 0) sums.busySeconds += passed
    if (running > 0 && waiting > 0) sums.waitedSeconds += passed
    sums.workSeconds += running * passed
    now = Math.max(now, Math.min(time, to))
  }
  const streams = [
    new TimeStream(uses.to, () => running--),
    new TimeStream(waits.from, () => waiting++),
    new TimeStream(waits.to, () => waiting--),
    new TimeStream(uses.from, () => {
      running++
      sums.maxAtOnce = Math.max(sums.maxAtOnce, running)
    }),
  ]
  for (let next = earliestOf(streams); next !== null; next = earliestOf(streams)) {
    if (next.time >= to) break
    advance(next.time)
    next.take()
  }
  advance(to)
  const waited = waits.from.reduce((sum, since, at) => sum + lengthOf(since, waits.to[at], to), 0)
  return { ...sums, meanWait: waits.from.length === 0 ? 0 : waited / waits.from.length }
}

const lengthOf = (since: number, until = Infinity, last: number): number =>
  Math.max(0, Math.min(until, last) - since)
