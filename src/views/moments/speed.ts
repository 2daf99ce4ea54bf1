/** The speed of the tasks of a name, and the expected time until all of them have ended. Pure. */

import type { NameView } from '../panels/names.ts'
import type { PaceView } from '../panels/pace.ts'

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
