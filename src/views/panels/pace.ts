/**
 * Pace: when the tasks of each name ran, and how many ended in the last ten seconds. Canceled and
 * reused tasks do not count, because they say nothing about the remaining ones. About 200 bytes a
 * name. Needs the panel `names` before it in the pass.
 */

import { findText, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import type { Panel } from '../panel.ts'
import type { NamesState } from './names.ts'

export interface PaceState {
  readonly byName: Map<number, NamePace>
}

interface NamePace {
  /** When the first task started; `null` if no start was seen. */
  start: number | null
  end: number
  /** The number of tasks that ended in each of the last seconds, the latest of them last. */
  readonly recent: number[]
  /** The second of the last element of `recent`. */
  second: number
}

export interface PaceQuery {
  /** The state in which the names are found. */
  readonly of: NamesState
  /** The names that count. */
  readonly names: readonly string[]
  readonly now: number
}

/** Several names together. */
export interface PaceView {
  readonly start: number | null
  /** The latest end; 0 if there is none. */
  readonly end: number
  /** How many tasks ended since `recentSince`. */
  readonly recent: number
  readonly recentSince: number
}

const recentSeconds = 10

export const pace: Panel<PaceState, PaceQuery, PaceView> = {
  create: () => ({ byName: new Map() }),

  take(state, { event_time: time, attributes }, { task, stage, before, after }, passed) {
    const names = passed?.['names'] as NamesState | undefined
    if (names === undefined || stage === 0 || after === before) return
    const isEnd = stage === stages.completed || stage === stages.failed
    if (stage !== stages.started && (!isEnd || attributes['reused'] === true)) return
    const own = paceOf(state, valueAt(names.nameOfTask, task), time)
    if (!isEnd) {
      own.start = Math.min(own.start ?? time, time)
      return
    }
    own.end = Math.max(own.end, time)
    countEnd(own, Math.floor(time))
  },

  show({ byName }, { of, names, now }) {
    const second = Math.floor(now)
    const found = names.flatMap((name) => byName.get(findText(of.names, name)) ?? [])
    return {
      start: found.reduce<number | null>((least, { start }) => earlier(least, start), null),
      end: found.reduce((most, { end }) => Math.max(most, end), 0),
      recent: found.reduce((sum, one) => sum + endsSince(one, second - recentSeconds + 1), 0),
      recentSince: second - recentSeconds + 1,
    }
  },
}

const earlier = (a: number | null, b: number | null): number | null =>
  a === null || b === null ? (a ?? b) : Math.min(a, b)

function paceOf({ byName }: PaceState, name: number, time: number): NamePace {
  const known = byName.get(name)
  if (known !== undefined) return known
  const recent = Array.from({ length: recentSeconds }, () => 0)
  const added = { start: null, end: 0, recent, second: Math.floor(time) }
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
  // Events of several machines may come out of order.
  const at = recentSeconds - 1 - (own.second - second)
  if (at >= 0) recent[at] = (recent[at] ?? 0) + 1
}

const endsSince = ({ recent, second }: NamePace, since: number): number =>
  recent.reduce((sum, count, at) => {
    return second - recentSeconds + 1 + at >= since ? sum + count : sum
  }, 0)
