/** The chain of dependent tasks that took longest, and the stragglers. */

import { valueAt } from '../columns.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { isFailedOutcome } from '../panels/lanes.ts'
import { durationsByName } from '../panels/names.ts'
import { statsInPlace } from '../stats.ts'
import { forEachGap } from './attempt-gaps.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { Chains, isBlock, type TaskRuns } from './chains.ts'
import { readStageTimes } from './task-times.ts'

/** A task of the critical path. `task` is the number of the task in the pass. */
export interface PathTask {
  readonly task: number
  readonly start: number
  /** The seconds of all attempts, without the time between them. */
  readonly seconds: number
}

/**
 * The longest chain of tasks that waited for each other, in order of time. The run cannot be
 * shorter than this chain, whatever the number of slots.
 */
export interface CriticalPath {
  /** The tasks of the path. If the path is very long, only its last tasks. */
  readonly tasks: readonly PathTask[]
  readonly length: number
  /** The seconds in which tasks of the path ran or waited for a retry. */
  readonly seconds: number
  /** `seconds` as a share of the length of the run. */
  readonly share: number
  readonly delaySeconds: number
}

/** How the time of the critical path was spent. */
export interface PathParts {
  /** The seconds that tasks took on the path, for the name with the most seconds. */
  readonly seconds: number
  /** One task of the name with the most seconds; -1 if no task ran. */
  readonly task: number
  /** The seconds of attempts that failed or were lost. */
  readonly failedSeconds: number
}

export interface Straggler {
  readonly task: number
  readonly seconds: number
  readonly median: number
  readonly isRetried: boolean
  readonly isOnPath: boolean
}

const maxPathTasks = 1000
const maxStragglers = 10
/** The minimum number of tasks for a meaningful median. */
const minTasksOfName = 4

/** Returns the running times of all tasks, as if running tasks and open gaps ended at `to`. */
export function collectRuns(state: BoundsState, query: BoundsQuery, to: number): TaskRuns {
  const { counts } = query
  const count = counts.index.names.size
  const column = (): Float64Array => new Float64Array(count).fill(Number.NaN)
  const runs = { end: column(), seconds: column(), delays: new Map<number, number>() }
  for (let task = 0; task < count; task++) {
    const { started, ended } = readStageTimes(state.times, task, stagesOf(counts, task))
    const end = ended ?? (started !== null && !isInterrupted(counts, task) ? to : null)
    if (end === null) continue
    runs.end[task] = end
    runs.seconds[task] = end - (started ?? end)
  }
  forEachGap(state, query, (gap) => {
    const { task } = gap
    if (Number.isNaN(runs.end[task])) return
    const seconds = Math.max(0, (gap.to ?? to) - gap.from)
    runs.seconds[task] = (runs.seconds[task] ?? 0) - seconds
    runs.delays.set(task, (runs.delays.get(task) ?? 0) + Math.min(seconds, gap.delay))
  })
  return runs
}

export function findCriticalPath(
  state: BoundsState,
  query: BoundsQuery,
  runs: TaskRuns,
  runSeconds: number,
): CriticalPath {
  const chains = new Chains(state, query, runs)
  const tasks: PathTask[] = []
  let [length, seconds, delaySeconds] = [0, 0, 0]
  const seen = new Set<number>()
  for (let task = chains.lastTask; task !== -1 && !seen.has(task);) {
    seen.add(task)
    // `|| 0` replaces the NaN of a task that did not run.
    const [end, ran] = [runs.end[task] || 0, runs.seconds[task] || 0]
    const { started } = readStageTimes(state.times, task, stagesOf(query.counts, task))
    const before = chains.chainBefore(task)
    const delay = (runs.delays.get(task) ?? 0) + before.delay
    length++
    seconds += ran + delay
    delaySeconds += delay
    if (tasks.length < maxPathTasks) tasks.push({ task, start: started ?? end, seconds: ran })
    task = before.last
  }
  const share = runSeconds > 0 ? Math.min(1, seconds / runSeconds) : 0
  return { tasks: tasks.toReversed(), length, seconds, share, delaySeconds }
}

export function measurePath({ names, lanes }: BoundsQuery, { tasks }: CriticalPath): PathParts {
  const onPath = new Set(tasks.map(({ task }) => task))
  const byName = Map.groupBy(tasks, ({ task }) => valueAt(names.nameOfTask, task))
  const sums = Array.from(byName.values(), (own) => ({
    task: own[0]?.task ?? -1,
    seconds: own.reduce((sum, { seconds }) => sum + seconds, 0),
  }))
  const [largest] = sums.toSorted((a, b) => b.seconds - a.seconds)
  let failedSeconds = 0
  for (let segment = 0; segment < lanes.size; segment++) {
    if (!isFailedOutcome(valueAt(lanes.outcome, segment))) continue
    if (onPath.has(valueAt(lanes.task, segment))) failedSeconds += valueAt(lanes.seconds, segment)
  }
  return { ...(largest ?? { task: -1, seconds: 0 }), failedSeconds }
}

/** The minimum extra time of a straggler, as a share of the run. */
const minExtraShare = 0.01

/** Finds tasks that took more than twice the median of their name, sorted by extra seconds. */
export function findStragglers(
  state: BoundsState,
  { names }: BoundsQuery,
  path: CriticalPath,
  runSeconds: number,
): Straggler[] {
  const onPath = new Set(path.tasks.map(({ task }) => task))
  const medians = durationsByName(names).map((durations) =>
    durations.length < minTasksOfName ? Infinity : statsInPlace(durations).p50,
  )
  const worstStragglers: Straggler[] = []
  for (let task = 0; task < names.tasks; task++) {
    const seconds = valueAt(names.durations, task)
    const median = medians[valueAt(names.nameOfTask, task)] ?? 0
    if (Number.isNaN(seconds) || seconds <= 2 * median || isBlock(state, task)) continue
    const excess = seconds - median
    if (excess < minExtraShare * runSeconds) continue
    const at = worstStragglers.findIndex((other) => excess > other.seconds - other.median)
    if (at === -1 && worstStragglers.length >= maxStragglers) continue
    const isRetried = valueAt(names.waits, task) > 0
    const found = { task, seconds, median, isRetried, isOnPath: onPath.has(task) }
    worstStragglers.splice(at === -1 ? worstStragglers.length : at, 0, found)
    if (worstStragglers.length > maxStragglers) worstStragglers.pop()
  }
  return worstStragglers
}
