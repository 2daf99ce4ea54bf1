/**
 * The chain of dependent tasks that took longest, and the stragglers. A task waits for its
 * dependencies. A task that a block created also waits for the dependencies of the block, and for
 * tasks of the block that had ended before its creation. A block takes as long as the tasks that it
 * created.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { dependenciesOf } from '../panels/graph.ts'
import { isFailedOutcome } from '../panels/lanes.ts'
import { durationsByName } from '../panels/names.ts'
import { statsInPlace } from '../stats.ts'
import { forEachGap } from './attempt-gaps.ts'
import { type BlockTree, hasChildren } from './block-tree.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
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
  /** The running time on the path, for the name whose tasks ran longest on it. */
  readonly seconds: number
  /** A task with this name; -1 if no task ran. */
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

/** The running times of tasks, by task; NaN for a task that did not run or has not ended. */
interface TaskRuns {
  readonly end: Float64Array
  /** The seconds of all attempts, without the time between them. */
  readonly seconds: Float64Array
  /** The retry delays of those tasks that had some. */
  readonly delays: ReadonlyMap<number, number>
}

/** A chain. `last` is its last task, or -1 if there is no chain. */
interface ChainEnd {
  readonly seconds: number
  readonly last: number
  /** The part of `seconds` that blocks spent in retry delays after the last task had ended. */
  readonly delay: number
}

const noChain: ChainEnd = { seconds: 0, last: -1, delay: 0 }

const isBlock = ({ requests, requestOfTask }: BoundsState, task: number): boolean =>
  requests[valueAt(requestOfTask, task)]?.backend === blockBackend

class Chains {
  readonly #query: BoundsQuery
  readonly #state: BoundsState
  readonly #blocks: BlockTree
  readonly #runs: TaskRuns
  /** The length of the chain that ends with each task; NaN for a task that did not run. */
  readonly #seconds: Float64Array
  /**
   * For each block, the last task of the chain that ends with the block. The block created this
   * task.
   */
  readonly #lastTasks = new Map<number, number>()
  /** The seconds of retry delays of a block that follow its task in `#lastTasks`, if any. */
  readonly #delays = new Map<number, number>()
  /** For each block, the longest chain of its tasks, without earlier delays of the block. */
  readonly #chainInBlock: (ChainEnd | undefined)[] = []
  readonly #chainBeforeBlock: (ChainEnd | undefined)[] = []

  constructor(state: BoundsState, query: BoundsQuery, runs: TaskRuns) {
    this.#state = state
    this.#query = query
    this.#blocks = state.blocks
    this.#runs = runs
    const count = runs.seconds.length
    this.#seconds = new Float64Array(count)
    const secondsOf = (task: number): number =>
      Math.max(0, runs.seconds[task] ?? 0) + (runs.delays.get(task) ?? 0)
    if (hasChildren(state.blocks)) {
      for (const task of sortByEnd(state.blocks, query.counts, count)) {
        this.#add(task, secondsOf(task))
      }
    } else {
      // Tasks can be visited in order, because they are created after their dependencies.
      for (let task = 0; task < count; task++) this.#addWithoutBlocks(task, secondsOf(task))
    }
  }

  /** The last task of the longest chain, or -1. Among equal chains, the task that ended last. */
  get lastTask(): number {
    let [last, best, end] = [-1, 0, -Infinity]
    for (let task = 0; task < this.#seconds.length; task++) {
      const seconds = this.#seconds[task] ?? 0
      // The comparison is negated, so that NaN is skipped too.
      if (!(seconds >= best) || !this.#canEnd(task)) continue
      const { seconds: ran, delays } = this.#runs
      const taskEnd = this.#endOf(task)
      if ((ran[task] || 0) + (delays.get(task) ?? 0) <= 0) continue
      if (seconds === best && taskEnd <= end) continue
      ;[last, best, end] = [task, seconds, taskEnd]
    }
    return last
  }

  /** Returns the longest chain that this task waited for. */
  chainBefore(task: number): ChainEnd {
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    const dependency = this.#maxDependency(task)
    let best = dependency === -1 ? noChain : this.#chainOf(dependency)
    if (block === -1) return best
    const delay = valueAt(this.#blocks.delayOfTask, task)
    const sibling = valueAt(this.#blocks.siblingOfTask, task) - 1
    if (sibling !== -1) {
      const since = delay - valueAt(this.#blocks.delayOfTask, sibling)
      best = longerChain(best, addDelay(this.#chainOf(sibling), since))
    }
    return longerChain(best, addDelay(this.#findChainBeforeBlock(block), delay))
  }

  #addWithoutBlocks(task: number, seconds: number): void {
    const before = this.#query.graph.size === 0 ? -1 : this.#maxDependency(task)
    this.#seconds[task] = seconds + (before === -1 ? 0 : this.#seconds[before] || 0)
  }

  #add(task: number, seconds: number): void {
    const before = this.chainBefore(task)
    const inBlock = this.#chainInBlock[task]
    const delay = valueAt(this.#blocks.delayOfBlock, task)
    const chain = inBlock === undefined ? null : addDelay(longerChain(before, inBlock), delay)
    const hasRun = !Number.isNaN(seconds)
    this.#seconds[task] = hasRun && chain !== null ? chain.seconds : seconds + before.seconds
    if (chain !== null) this.#lastTasks.set(task, chain.last)
    if (chain !== null && chain.delay !== 0) this.#delays.set(task, chain.delay)
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    if (block === -1 || !hasRun) return
    const added = addDelay(this.#chainOf(task), -valueAt(this.#blocks.delayOfTask, task))
    this.#chainInBlock[block] = longerChain(this.#chainInBlock[block] ?? noChain, added)
  }

  /** Like `chainBefore`, but for a block, with a cache. Computes enclosing blocks first. */
  #findChainBeforeBlock(task: number): ChainEnd {
    const unknown: number[] = []
    for (let one = task; one !== -1 && this.#chainBeforeBlock[one] === undefined;) {
      unknown.push(one)
      one = valueAt(this.#blocks.blockOfTask, one) - 1
    }
    for (const one of unknown.toReversed()) this.#chainBeforeBlock[one] = this.chainBefore(one)
    return this.#chainBeforeBlock[task] ?? noChain
  }

  /**
   * Returns the dependency with the longest chain, or -1 if there is none. Among equal chains,
   * returns the dependency that ended last.
   */
  #maxDependency(task: number): number {
    let [best, seconds] = [-1, 0]
    for (const one of dependenciesOf(this.#query.graph, task)) {
      // `|| 0` replaces the NaN of a task that did not run.
      const length = this.#seconds[one] || 0
      if (length < seconds || (length === seconds && this.#endOf(one) <= this.#endOf(best)))
        continue
      ;[best, seconds] = [one, length]
    }
    return best
  }

  #endOf(task: number): number {
    return task === -1 ? -Infinity : this.#runs.end[task] || 0
  }

  #chainOf(task: number): ChainEnd {
    const [last = task, delay = 0] = [this.#lastTasks.get(task), this.#delays.get(task)]
    return { seconds: this.#seconds[task] || 0, last, delay }
  }

  /**
   * Whether a path may end with this task. It may not end with a block, which takes as long as the
   * tasks that it waits for, or with a canceled task, whose duration depends on the caller.
   */
  #canEnd(task: number): boolean {
    if (isBlock(this.#state, task)) return false
    const { counts } = this.#query
    const { totals } = counts
    const isCanceled = (stagesOf(counts, task) & stages.canceled) !== 0
    return !isCanceled || totals.completed + totals.failed + totals.running === 0
  }
}

const longerChain = (a: ChainEnd, b: ChainEnd): ChainEnd => (b.seconds > a.seconds ? b : a)

const addDelay = ({ seconds, last, delay }: ChainEnd, more: number): ChainEnd =>
  more === 0 ? { seconds, last, delay } : { seconds: seconds + more, last, delay: delay + more }

/** Sorts tasks after those that they waited for. Tasks that ended before any block come first. */
function sortByEnd(
  { ended, endedCount }: BlockTree,
  counts: BoundsQuery['counts'],
  count: number,
): Uint32Array {
  const isListed = new Uint8Array(count)
  for (let at = 0; at < endedCount; at++) isListed[valueAt(ended, at) - 1] = 1
  const order = new Uint32Array(count + endedCount)
  let size = 0
  const addOthers = (areEnded: boolean): void => {
    for (let task = 0; task < count; task++) {
      if (isListed[task] === 1 || hasEnded(stagesOf(counts, task)) !== areEnded) continue
      order[size++] = task
    }
  }
  addOthers(true)
  for (let at = 0; at < endedCount; at++) order[size++] = valueAt(ended, at) - 1
  addOthers(false)
  return order.subarray(0, size)
}
