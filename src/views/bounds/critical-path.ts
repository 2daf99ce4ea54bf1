/** The chain of tasks that determined the end of the run, and the tasks that took too long. */

import { valueAt } from '../columns.ts'
import { statsInPlace } from '../stats.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { dependenciesOf } from '../panels/graph.ts'
import { durationsByName, type NamesState } from '../panels/names.ts'
import { storyOf } from './task-times.ts'

/** A task of the path, with when it ran; a task is known by its number in the pass. */
export interface PathTask {
  readonly task: number
  readonly start: number
  readonly end: number
}

/** From the task that ended last back to one without dependencies, in the order of time. */
export interface CriticalPath {
  /** The last ones, where there are many. */
  readonly tasks: readonly PathTask[]
  readonly length: number
  /** In which tasks of the path ran, and the share of that in the length of the run. */
  readonly seconds: number
  readonly share: number
}

export interface Straggler {
  readonly task: number
  readonly seconds: number
  /** Of the tasks with the same name. */
  readonly median: number
}

const mostPathTasks = 1000
const mostStragglers = 10

/** Each step goes to the dependency that ended last: it made the task wait. */
export function findCriticalPath(
  state: BoundsState,
  { counts, graph }: BoundsQuery,
  { to, seconds: whole }: { readonly to: number; readonly seconds: number },
): CriticalPath {
  const endOf = (task: number): number => {
    const { started, ended } = storyOf(state.times, task, stagesOf(counts, task))
    const isRunning = started !== null && !isInterrupted(counts, task)
    return ended ?? (isRunning ? to : -Infinity)
  }
  const path: PathTask[] = []
  let [length, seconds] = [0, 0]
  const seen = new Set<number>()
  let task = latest(counts.index.names.size, (at) => at, endOf)
  while (task !== -1 && !seen.has(task)) {
    seen.add(task)
    const end = endOf(task)
    const start = storyOf(state.times, task, stagesOf(counts, task)).started ?? end
    length++
    seconds += end - start
    if (path.length < mostPathTasks) path.push({ task, start, end })
    const dependencies = dependenciesOf(graph, task)
    task = latest(dependencies.length, (at) => dependencies[at] ?? -1, endOf)
  }
  const share = whole > 0 ? Math.min(1, seconds / whole) : 0
  return { tasks: path.toReversed(), length, seconds, share }
}

/** Of `count` tasks the one that ended last, or -1. */
function latest(
  count: number,
  taskAt: (at: number) => number,
  endOf: (task: number) => number,
): number {
  let [last, lastEnd] = [-1, -Infinity]
  for (let at = 0; at < count; at++) {
    const end = endOf(taskAt(at))
    if (end > lastEnd) [last, lastEnd] = [taskAt(at), end]
  }
  return last
}

/** Those that exceed the median of their name by most seconds, and by at least its half. */
export function findStragglers(names: NamesState): Straggler[] {
  const medians = durationsByName(names).map((durations) => statsInPlace(durations).p50)
  const worst: Straggler[] = []
  for (let task = 0; task < names.tasks; task++) {
    const seconds = valueAt(names.durations, task)
    const median = medians[valueAt(names.nameOfTask, task)] ?? 0
    if (Number.isNaN(seconds) || seconds <= 1.5 * median) continue
    const excess = seconds - median
    const at = worst.findIndex((other) => excess > other.seconds - other.median)
    if (at === -1 && worst.length >= mostStragglers) continue
    worst.splice(at === -1 ? worst.length : at, 0, { task, seconds, median })
    if (worst.length > mostStragglers) worst.pop()
  }
  return worst
}
