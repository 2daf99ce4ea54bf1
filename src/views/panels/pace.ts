/**
 * Pace: when the tasks of each name ran, and how many ended in the last ten seconds. Ignores
 * canceled tasks, reused results and tasks that never ran, because they do not help to estimate the
 * remaining time. Uses about 200 bytes per name and 50 bytes per running task. The panel
 * `names` must precede this panel in the pass.
 */

import { findText, valueAt } from '../columns.ts'
import { hasStarted, stages } from '../lifecycle.ts'
import { type Panel, resumption } from '../panel.ts'
import type { NamesState, NameView } from './names.ts'

export interface PaceState {
  readonly byName: Map<number, NamePace>
}

interface NamePace {
  /** The time at which the first task started; `null` if unknown. */
  start: number | null
  end: number
  /** The number of tasks that ran and ended. */
  ended: number
  /** The sum of the running times of these tasks, in seconds. */
  seconds: number
  readonly starts: Map<number, number>
  /** The number of tasks that ended in each of the last seconds, oldest second first. */
  readonly recent: number[]
  /** The second that the last element of `recent` belongs to. */
  second: number
}

export interface PaceQuery {
  readonly namesState: NamesState
  readonly names: readonly string[]
  readonly now: number
}

/** The pace of several names together. */
export interface PaceView {
  readonly start: number | null
  /** The latest time at which a task ended; 0 if no task has ended. */
  readonly end: number
  readonly ended: number
  /** The maximum number of seconds by which a running task exceeds the mean of its name, or 0. */
  readonly overdue: number
  readonly recent: number
  readonly recentSince: number
}

export const recentSeconds = 10

export const pace: Panel<PaceState, PaceQuery, PaceView> = {
  create: () => ({ byName: new Map() }),

  take(state, { event_time: time, attributes }, step, passed) {
    // A session that has ended runs no tasks.
    if (step === resumption) for (const own of state.byName.values()) own.starts.clear()
    const { task, stage, before, after } = step
    const names = passed?.['names'] as NamesState | undefined
    if (names === undefined || stage === 0 || after === before) return
    if (stage < stages.started) return
    const own = findOrAddPace(state, valueAt(names.nameOfTask, task), time)
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

  show({ byName }, { namesState, names, now }) {
    const second = Math.floor(now)
    const found = names.flatMap((name) => byName.get(findText(namesState.names, name)) ?? [])
    return {
      start: found.reduce<number | null>((min, { start }) => earlierTime(min, start), null),
      end: found.reduce((max, { end }) => Math.max(max, end), 0),
      ended: found.reduce((sum, { ended }) => sum + ended, 0),
      overdue: found.reduce((max, one) => Math.max(max, overdueSeconds(one, now)), 0),
      recent: found.reduce((sum, one) => sum + countEndsSince(one, second - recentSeconds + 1), 0),
      recentSince: second - recentSeconds + 1,
    }
  },
}

/**
 * Returns by how many seconds the oldest running task exceeds the mean. Returns 0 if no task of the
 * name has ended, because there is no mean yet.
 */
function overdueSeconds({ starts, seconds, ended }: NamePace, now: number): number {
  if (ended === 0) return 0
  let oldest = now
  for (const start of starts.values()) oldest = Math.min(oldest, start)
  return now - oldest - seconds / ended
}

const earlierTime = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b)

function findOrAddPace({ byName }: PaceState, name: number, time: number): NamePace {
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
  // The event may be older than the latest one, because events of several machines may arrive out
  // of order.
  const at = recentSeconds - 1 - (own.second - second)
  if (at >= 0) recent[at] = (recent[at] ?? 0) + 1
}

const countEndsSince = ({ recent, second }: NamePace, since: number): number =>
  recent.reduce((sum, count, at) => {
    return second - recentSeconds + 1 + at >= since ? sum + count : sum
  }, 0)

/** The number of completed and failed tasks. Canceled tasks do not count as done. */
export const countDone = ({ completed, failed }: NameView): number => completed + failed

export const countLeft = (name: NameView): number => name.total - countDone(name) - name.canceled

export interface Speed {
  /** Tasks per second; `null` if no task has run to completion. */
  readonly rate: number | null
  /** The expected time until all tasks end; `null` if no task is left or the rate is unknown. */
  readonly secondsLeft: number | null
}

/** The rate of the last seconds, or the mean for a name whose tasks have all ended. */
export function computeSpeed(name: NameView, own: PaceView, begin: number, now: number): Speed {
  const { ended: ran } = own
  if (ran === 0) return { rate: null, secondsLeft: null }
  const [start, left] = [own.start ?? begin, countLeft(name)]
  const since = (time: number, until: number): number => Math.max(1e-3, until - time)
  if (left === 0) return { rate: ran / since(start, own.end), secondsLeft: null }
  const rate = own.recent / since(Math.max(start, own.recentSince), now)
  const running = name.running - name.waiting
  // If few tasks ended recently, the mean is used. It counts running tasks as half done: if many
  // run at once, ended tasks alone would give far too long a time at the beginning.
  const mean = (ran + running / 2) / since(start, now)
  const secondsLeft = left / (own.recent < Math.max(10, running) ? mean : rate)
  // The time left is unknown if only running tasks are left and a task is overdue, because the rate
  // does not predict when a straggler will end.
  const isUnknown = left === running && secondsLeft < own.overdue
  return { rate, secondsLeft: isUnknown ? null : secondsLeft }
}

/** The numbers of all names together. */
export function sumNames(all: readonly NameView[]): NameView {
  const sum = (key: 'total' | 'running' | 'waiting' | EndedState): number =>
    all.reduce((before, name) => before + name[key], 0)
  return {
    name: 'total',
    taskType: '',
    total: sum('total'),
    running: sum('running'),
    waiting: sum('waiting'),
    progress: null,
    completed: sum('completed'),
    reused: sum('reused'),
    failed: sum('failed'),
    canceled: sum('canceled'),
  }
}

type EndedState = 'completed' | 'reused' | 'failed' | 'canceled'
