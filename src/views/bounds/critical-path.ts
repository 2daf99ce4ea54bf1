/** The chain of dependent tasks that took longest, and the stragglers. */

import { valueAt } from '../columns.ts'
import { statsInPlace } from '../stats.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { failedOutcomes } from '../panels/lanes.ts'
import { durationsByName } from '../panels/names.ts'
import { type AttemptGaps, delayOf, gapOf } from './attempt-gaps.ts'
import { Chains, isBlock, type TaskRuns } from './chains.ts'
import { type ChangedRun, changeRun } from './changed-runs.ts'
import type { BackendUse } from './slot-run.ts'
import { storyOf } from './task-times.ts'

/** A task of the critical path; `task` is its number in the pass. */
export interface PathTask {
  readonly task: number
  readonly start: number
  /** Seconds of all attempts, without the time between them. */
  readonly seconds: number
  /** Seconds of retry delays of the task, or of a block that created it. */
  readonly delay: number
}

/**
 * The longest chain of tasks that waited for each other, in order of time. The run cannot be
 * shorter than this with any number of slots.
 */
export interface CriticalPath {
  /** The tasks of the path; only the last ones if the path is very long. */
  readonly tasks: readonly PathTask[]
  readonly length: number
  /** Seconds in which tasks of the path ran or waited for a retry; `share` is that of the run. */
  readonly seconds: number
  readonly share: number
  /** The part of `seconds` spent in retry delays. */
  readonly delaySeconds: number
  /** `null` if the path has no straggler, delay or failed attempt, respectively. */
  readonly withoutStragglers: ChangedRun | null
  readonly withoutDelays: ChangedRun | null
  readonly withoutFailures: ChangedRun | null
  /** The task name with the largest part of the path. */
  readonly largestName: LargestName
  /**
   * The name with the most slot-seconds on the backend whose tasks waited longest for slots. `null`
   * if no task waited, or if it is the name of `largestName`.
   */
  readonly busiestName: LargestName | null
}

export interface LargestName {
  /** One of the tasks with this name; -1 if the path is empty. */
  readonly task: number
  /** Seconds of this name on the path or in slots. */
  readonly seconds: number
  /** A hypothetical run in which all tasks of this name take half as long. */
  readonly halved: ChangedRun
}

export interface Straggler {
  readonly task: number
  /** Seconds of all attempts, without the time between them. */
  readonly seconds: number
  /** The median duration of tasks with the same name. */
  readonly median: number
  /** Whether the task had several attempts, which explains its long duration. */
  readonly isRetried: boolean
}

const maxPathTasks = 1000
const maxStragglers = 10
/** With fewer tasks, the median is not meaningful. */
const minTasksOfName = 4

type Gaps = AttemptGaps | null

interface PathRange {
  readonly to: number
  readonly seconds: number
  readonly hasFailures: boolean
  readonly gaps: Gaps
  readonly stragglers: readonly Straggler[]
  readonly backends: readonly BackendUse[]
}

export function findCriticalPath(
  state: BoundsState,
  query: BoundsQuery,
  { to, seconds: whole, hasFailures, gaps, stragglers, backends }: PathRange,
): CriticalPath {
  const { names } = query
  const runs = runsOf(state, query, gaps, to)
  const chains = new Chains(state, query, runs)
  const path = followPath(chains, whole, runs)
  const onPath = new Set(path.tasks.map(({ task }) => task))
  const late = stragglers.filter(({ task }) => onPath.has(task))
  const change = (changed: Parameters<typeof changeRun>[3]): ChangedRun =>
    changeRun(state, query, runs, changed)
  const halved = ({ name, ...sum }: NameSum): LargestName => {
    const shareOf = (task: number): number => (valueAt(names.nameOfTask, task) === name ? 1 / 2 : 0)
    return { ...sum, halved: change({ shareOf }) }
  }
  const excess = new Map(late.map(({ task, seconds, median }) => [task, 1 - median / seconds]))
  const ofFailures = (task: number, outcome: number): number =>
    failedOutcomes.has(outcome) && !isBlock(state, task) ? 1 : 0
  const largest = largestOf(secondsOnPath(path.tasks, names))
  const busiest = largestOf(secondsInSlots(state, query, backends))
  return {
    ...path,
    withoutStragglers:
      late.length === 0 ? null : change({ shareOf: (task) => excess.get(task) ?? 0 }),
    withoutDelays: path.delaySeconds === 0 ? null : change({ isWithoutDelays: true }),
    withoutFailures: hasFailures ? change({ shareOf: ofFailures, isWithoutDelays: true }) : null,
    largestName: halved(largest),
    busiestName: busiest.name === -1 || busiest.name === largest.name ? null : halved(busiest),
  }
}

function runsOf({ times }: BoundsState, { counts }: BoundsQuery, gaps: Gaps, to: number): TaskRuns {
  const count = counts.index.names.size
  const column = (): Float64Array => new Float64Array(count).fill(Number.NaN)
  const runs = { start: column(), end: column(), seconds: column(), delay: column() }
  for (let task = 0; task < count; task++) {
    const { started, ended } = storyOf(times, task, stagesOf(counts, task))
    const end = ended ?? (started !== null && !isInterrupted(counts, task) ? to : null)
    if (end === null) continue
    const start = started ?? end
    runs.start[task] = start
    runs.end[task] = end
    runs.seconds[task] = end - start - gapOf(gaps, task)
    runs.delay[task] = delayOf(gaps, task)
  }
  return runs
}

type FollowedPath = Pick<CriticalPath, 'tasks' | 'length' | 'seconds' | 'share' | 'delaySeconds'>

function followPath(
  chains: Chains,
  whole: number,
  { start: starts, seconds: all, delay: delays }: TaskRuns,
): FollowedPath {
  const path: PathTask[] = []
  let [length, seconds, delaySeconds] = [0, 0, 0]
  const seen = new Set<number>()
  for (let task = chains.last; task !== -1 && !seen.has(task);) {
    seen.add(task)
    // `|| 0` replaces the NaN of a task that did not run.
    const [start, ran] = [starts[task] || 0, all[task] || 0]
    const delay = delays[task] || 0
    const before = chains.before(task)
    const waited = delay + before.delay
    length++
    seconds += ran + waited
    delaySeconds += waited
    if (path.length < maxPathTasks) path.push({ task, start, seconds: ran, delay: waited })
    task = before.last
  }
  const share = whole > 0 ? Math.min(1, seconds / whole) : 0
  return { tasks: path.toReversed(), length, seconds, share, delaySeconds }
}

/** The seconds of one name, and one of its tasks. */
interface NameSum {
  readonly name: number
  readonly task: number
  readonly seconds: number
}

class NameSums {
  readonly byName = new Map<number, NameSum>()
  readonly #nameOfTask: BoundsQuery['names']['nameOfTask']

  constructor({ nameOfTask }: BoundsQuery['names']) {
    this.#nameOfTask = nameOfTask
  }

  add(task: number, seconds: number): void {
    const name = valueAt(this.#nameOfTask, task)
    this.byName.set(name, {
      name,
      task,
      seconds: (this.byName.get(name)?.seconds ?? 0) + seconds,
    })
  }
}

function largestOf({ byName }: NameSums): NameSum {
  const [largest] = [...byName.values()].toSorted((a, b) => b.seconds - a.seconds)
  return largest ?? { name: -1, task: -1, seconds: 0 }
}

function secondsOnPath(path: readonly PathTask[], names: BoundsQuery['names']): NameSums {
  const sums = new NameSums(names)
  for (const { task, seconds } of path) sums.add(task, seconds)
  return sums
}

function secondsInSlots(
  { requests, requestOfTask }: BoundsState,
  { lanes, names }: BoundsQuery,
  backends: readonly BackendUse[],
): NameSums {
  const sums = new NameSums(names)
  const [fullest] = backends.toSorted((a, b) => b.fullSeconds - a.fullSeconds)
  if (fullest === undefined || fullest.fullSeconds === 0) return sums
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    const request = requests[valueAt(requestOfTask, task)]
    if (request?.backend !== fullest.backend) continue
    sums.add(task, request.cores * request.ranks * valueAt(lanes.seconds, segment))
  }
  return sums
}

/** Stragglers with a smaller share of the run's length are left out. */
const minExtraShare = 0.01

/** Finds tasks that took over twice the median of their name, sorted by extra seconds. */
export function findStragglers(
  state: BoundsState,
  { names }: BoundsQuery,
  runSeconds: number,
): Straggler[] {
  const medians = durationsByName(names).map((durations) =>
    durations.length < minTasksOfName ? Infinity : statsInPlace(durations).p50,
  )
  const worst: Straggler[] = []
  for (let task = 0; task < names.tasks; task++) {
    const seconds = valueAt(names.durations, task)
    const median = medians[valueAt(names.nameOfTask, task)] ?? 0
    if (Number.isNaN(seconds) || seconds <= 2 * median || isBlock(state, task)) continue
    const excess = seconds - median
    if (excess < minExtraShare * runSeconds) continue
    const at = worst.findIndex((other) => excess > other.seconds - other.median)
    if (at === -1 && worst.length >= maxStragglers) continue
    const isRetried = valueAt(names.waits, task) > 0
    worst.splice(at === -1 ? worst.length : at, 0, { task, seconds, median, isRetried })
    if (worst.length > maxStragglers) worst.pop()
  }
  return worst
}
