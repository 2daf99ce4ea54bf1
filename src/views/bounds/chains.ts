/**
 * Chains of tasks that waited for each other. A task waits for its dependencies. A task that a
 * block created also waits for the dependencies of the block, and for tasks of the block that had
 * ended before its creation. A block takes as long as the tasks that it created.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { dependenciesOf } from '../panels/graph.ts'
import { type BlockTree, hasChildren } from './block-tree.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'

/** The running times of tasks, by task; NaN for a task that did not run or has not ended. */
export interface TaskRuns {
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

export const isBlock = ({ requests, requestOfTask }: BoundsState, task: number): boolean =>
  requests[valueAt(requestOfTask, task)]?.backend === blockBackend

export class Chains {
  readonly #query: BoundsQuery
  readonly #state: BoundsState
  readonly #blocks: BlockTree
  readonly #runs: TaskRuns
  /** The length of the chain that ends with each task; NaN for a task that did not run. */
  readonly #seconds: Float64Array
  /** For each block, the last task of the chain that ends with it: a task that it created. */
  readonly #lastTasks = new Map<number, number>()
  /** For each block with a delay, the part of its chain after that task had ended. */
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
