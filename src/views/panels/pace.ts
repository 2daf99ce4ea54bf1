/**
 * Pace: when the tasks of each name ran, and how many ended in the last ten seconds. Canceled and
 * reused tasks, and tasks that never ran, do not count, because they do not help to estimate the
 * remaining time. About 200 bytes per name and 50 per running task. The panel `names` must come
 * before it in the pass.
 */

import { findText, valueAt } from '../columns.ts'
import { hasStarted, stages } from '../lifecycle.ts'
import { type Panel, resumption } from '../panel.ts'
import type { NamesState } from './names.ts'

export interface PaceState {
  readonly byName: Map<number, NamePace>
}

interface NamePace {
  /** The time at which the first task started; `null` if unknown. */
  start: number | null
  end: number
  /** The number of tasks that ran and ended, and the sum of their seconds. */
  ended: number
  seconds: number
  /** The start time of each running task. */
  readonly starts: Map<number, number>
  /** The number of tasks that ended in each of the last seconds, latest second last. */
  readonly recent: number[]
  /** The second of the last element of `recent`. */
  second: number
}

export interface PaceQuery {
  /** The state of the panel that has the names. */
  readonly of: NamesState
  /** The names to sum up. */
  readonly names: readonly string[]
  readonly now: number
}

/** The sum over several names. */
export interface PaceView {
  readonly start: number | null
  /** The latest time at which a task ended; 0 if none has. */
  readonly end: number
  /** The number of tasks that ran and ended. */
  readonly ended: number
  /** The maximum number of seconds by which a running task exceeds the mean of its name, or 0. */
  readonly overdue: number
  /** The number of tasks that ended since `recentSince`. */
  readonly recent: number
  readonly recentSince: number
}

const recentSeconds = 10

export const pace: Panel<PaceState, PaceQuery, PaceView> = {
  create: () => ({ byName: new Map() }),

  take(state, { event_time: time, attributes }, step, passed) {
    // After a session has ended, none of its tasks is running.
    if (step === resumption) for (const own of state.byName.values()) own.starts.clear()
    const { task, stage, before, after } = step
    const names = passed?.['names'] as NamesState | undefined
    if (names === undefined || stage === 0 || after === before) return
    if (stage < stages.started) return
    const own = paceOf(state, valueAt(names.nameOfTask, task), time)
    if (stage === stages.started) {
      own.start = Math.min(own.start ?? time, time)
      own.starts.set(task, time)
      return
    }
    const start = own.starts.get(task)
    own.starts.delete(task)
    const hasRun = stage === stages.completed ? attributes['reused'] !== true : hasStarted(before)
    if (stage === stages.canceled || !hasRun) return
    own.ended++
    own.seconds += Math.max(0, time - (start ?? time))
    own.end = Math.max(own.end, time)
    countEnd(own, Math.floor(time))
  },

  show({ byName }, { of, names, now }) {
    const second = Math.floor(now)
    const found = names.flatMap((name) => byName.get(findText(of.names, name)) ?? [])
    return {
      start: found.reduce<number | null>((min, { start }) => earlier(min, start), null),
      end: found.reduce((max, { end }) => Math.max(max, end), 0),
      ended: found.reduce((sum, { ended }) => sum + ended, 0),
      overdue: found.reduce((max, one) => Math.max(max, overdueOf(one, now)), 0),
      recent: found.reduce((sum, one) => sum + endsSince(one, second - recentSeconds + 1), 0),
      recentSince: second - recentSeconds + 1,
    }
  },
}

/** If no task of the name has ended, there is no mean to exceed. */
function overdueOf({ starts, seconds, ended }: NamePace, now: number): number {
  if (ended === 0) return 0
  let oldest = now
  for (const start of starts.values()) oldest = Math.min(oldest, start)
  return now - oldest - seconds / ended
}

const earlier = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b)

function paceOf({ byName }: PaceState, name: number, time: number): NamePace {
  const known = byName.get(name)
  if (known !== undefined) return known
  const recent = Array.from({ length: recentSeconds }, () => 0)
  const added = {
    start: null,
    end: 0,
    ended: 0,
    seconds: 0,
    starts: new Map(),
    recent,
    second: Math.floor(time),
  }
  byName.set(name, added)
  return added
}

function countEnd(own: NamePace, second: number): void {
  const { recent } = own
  const passed = Math.min(recentSeconds, Math.max(0, second - own.second))
  for (let at = 0; at < passed; at++) {
    recent.shift()
    recent.push(0)
  }
  own.second = Math.max(own.second, second)
  // Events of several machines may arrive out of order.
  const at = recentSeconds - 1 - (own.second - second)
  if (at >= 0) recent[at] = (recent[at] ?? 0) + 1
}

const endsSince = ({ recent, second }: NamePace, since: number): number =>
  recent.reduce((sum, count, at) => {
    return second - recentSeconds + 1 + at >= since ? sum + count : sum
  }, 0)
