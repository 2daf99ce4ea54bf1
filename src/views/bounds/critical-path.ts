/** The chain of dependent tasks that took longest, and the tasks that took too long. */

import { blockBackend } from '../../foundation/ids.ts'
import { valueAt } from '../columns.ts'
import { statsInPlace } from '../stats.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { dependenciesOf } from '../panels/graph.ts'
import { durationsByName } from '../panels/names.ts'
import { type AttemptGaps, delayOf, gapOf } from './attempt-gaps.ts'
import { storyOf } from './task-times.ts'

/** A task of the path, with when it ran; a task is known by its number in the pass. */
export interface PathTask {
  readonly task: number
  readonly start: number
  /** Of all its attempts, without the time between them. */
  readonly seconds: number
  /** For which it was not tried again after a failed attempt. */
  readonly delay: number
}

/**
 * Of all chains of tasks that waited for each other the one that took longest, in the order of
 * time. Whatever slots there are, the run takes no less.
 */
export interface CriticalPath {
  /** The last ones, where there are many. */
  readonly tasks: readonly PathTask[]
  readonly length: number
  /** In which tasks of the path ran or had to wait for a retry; its share in the run's length. */
  readonly seconds: number
  readonly share: number
  /** Of the seconds, those of delays before a retry. */
  readonly delaySeconds: number
}

export interface Straggler {
  readonly task: number
  /** Of all its attempts, without the time between them. */
  readonly seconds: number
  /** Of the tasks with the same name. */
  readonly median: number
}

const isBlock = ({ requests, requestOfTask }: BoundsState, task: number): boolean =>
  requests[valueAt(requestOfTask, task)]?.backend === blockBackend

const mostPathTasks = 1000
const mostStragglers = 10

type Gaps = AttemptGaps | null
type TaskRun = Omit<PathTask, 'task'> & { readonly end: number }

/**
 * A task is created after those that it waits for, so their chains are known when its turn comes.
 * Of equal chains the one that ended last counts.
 */
export function findCriticalPath(
  state: BoundsState,
  { counts, graph }: BoundsQuery,
  { to, seconds: whole, gaps }: { to: number; seconds: number; gaps: Gaps },
): CriticalPath {
  /** `null` for a task that did not run and has no end. */
  const runOf = (task: number): TaskRun | null => {
    const { started, ended } = storyOf(state.times, task, stagesOf(counts, task))
    const end = ended ?? (started !== null && !isInterrupted(counts, task) ? to : null)
    if (end === null) return null
    const start = started ?? end
    return { start, end, seconds: end - start - gapOf(gaps, task), delay: delayOf(gaps, task) }
  }
  /** For each task the seconds of the longest chain that ends with it; NaN for none. */
  const chains = new Float64Array(counts.index.names.size).fill(Number.NaN)
  const longest = (tasks: readonly number[]): number => {
    let best = -1
    for (const task of tasks) {
      const [own, other] = [chains[task] ?? Number.NaN, chains[best] ?? -1]
      const isLater = (): boolean => (runOf(task)?.end ?? 0) > (runOf(best)?.end ?? 0)
      if (own > other || (own === other && isLater())) best = task
    }
    return best
  }
  let [last, lastEnd] = [-1, -Infinity]
  for (let task = 0; task < chains.length; task++) {
    const run = runOf(task)
    if (run === null) continue
    const own = run.seconds + run.delay
    const dependencies = graph.size === 0 ? [] : dependenciesOf(graph, task)
    const seconds = dependencies.length === 0 ? own : own + (chains[longest(dependencies)] ?? 0)
    chains[task] = seconds
    const best = chains[last] ?? -1
    // A block takes as long as what it waits for, which is not told to be its dependency.
    if (isBlock(state, task)) continue
    if (own > 0 && (seconds > best || (seconds === best && run.end > lastEnd))) {
      last = task
      lastEnd = run.end
    }
  }
  return followPath(last, { whole, runOf, before: (at) => longest(dependenciesOf(graph, at)) })
}

interface PathSteps {
  readonly whole: number
  readonly runOf: (task: number) => TaskRun | null
  /** The task that this one waited for, or -1. */
  readonly before: (task: number) => number
}

function followPath(last: number, { whole, runOf, before }: PathSteps): CriticalPath {
  const path: PathTask[] = []
  let [length, seconds, delaySeconds] = [0, 0, 0]
  const seen = new Set<number>()
  for (let task = last; task !== -1 && !seen.has(task); task = before(task)) {
    seen.add(task)
    const { start, seconds: ran, delay } = runOf(task) ?? { start: 0, seconds: 0, delay: 0 }
    length++
    seconds += ran + delay
    delaySeconds += delay
    if (path.length < mostPathTasks) path.push({ task, start, seconds: ran, delay })
  }
  const share = whole > 0 ? Math.min(1, seconds / whole) : 0
  return { tasks: path.toReversed(), length, seconds, share, delaySeconds }
}

/** Those that exceed the median of their name by most seconds, and by at least its half. */
export function findStragglers(
  state: BoundsState,
  { names }: BoundsQuery,
  gaps: Gaps,
): Straggler[] {
  const { durations: told } = names
  const ranOf = (task: number): number =>
    gaps === null ? valueAt(told, task) : Math.max(0, valueAt(told, task) - gapOf(gaps, task))
  const medians = durationsByName(names, ranOf).map((durations) => statsInPlace(durations).p50)
  const worst: Straggler[] = []
  for (let task = 0; task < names.tasks; task++) {
    const seconds = ranOf(task)
    const median = medians[valueAt(names.nameOfTask, task)] ?? 0
    if (Number.isNaN(seconds) || seconds <= 1.5 * median || isBlock(state, task)) continue
    const excess = seconds - median
    const at = worst.findIndex((other) => excess > other.seconds - other.median)
    if (at === -1 && worst.length >= mostStragglers) continue
    worst.splice(at === -1 ? worst.length : at, 0, { task, seconds, median })
    if (worst.length > mostStragglers) worst.pop()
  }
  return worst
}
