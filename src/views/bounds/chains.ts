/**
 * Chains of tasks that waited for each other, in the actual run and in hypothetical ones. A task
 * waits for its dependencies. A task created by a block also waits for the dependencies of the
 * block and for tasks that had ended in the block before its creation. A block takes as long as the
 * tasks it created.
 */

import { blockBackend } from '../../foundation/ids.ts'
import { valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { dependenciesOf } from '../panels/graph.ts'
import { type BlockTree, hasChildren } from './block-tree.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'

/** Running times, indexed by task; NaN for a task that did not run or has not ended. */
export interface TaskRuns {
  readonly start: Float64Array
  readonly end: Float64Array
  /** Seconds of all attempts, without the time between them. */
  readonly seconds: Float64Array
  /** Seconds of retry delays after failed attempts. */
  readonly delay: Float64Array
}

/** A chain, identified by its last task; -1 for no chain. */
interface ChainEnd {
  readonly seconds: number
  readonly last: number
  /** The part of `seconds` spent in retry delays of blocks after the last task. */
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
  readonly #isWithoutDelays: boolean
  readonly #hasBlocks: boolean
  /** The length of the chain that ends with each task; NaN for a task that did not run. */
  readonly #seconds: Float64Array
  /** The last task of each task's chain; for a block, a task that it created. */
  readonly #last: Int32Array
  readonly #delay: Float64Array
  /** For each block, the longest chain of its tasks, without earlier delays of the block. */
  readonly #within: (ChainEnd | undefined)[] = []
  /** For each block, the longest chain that it waited for. */
  readonly #before: (ChainEnd | undefined)[] = []

  /** `saved` is the number of seconds that each task is shorter in a hypothetical run. */
  constructor(
    state: BoundsState,
    query: BoundsQuery,
    runs: TaskRuns,
    change: { saved?: Float64Array; isWithoutDelays?: boolean } = {},
  ) {
    const { saved, isWithoutDelays = false } = change
    this.#state = state
    this.#query = query
    this.#blocks = state.blocks
    this.#runs = runs
    this.#isWithoutDelays = isWithoutDelays
    const count = runs.seconds.length
    this.#hasBlocks = hasChildren(state.blocks)
    this.#seconds = new Float64Array(count)
    this.#last = new Int32Array(count)
    this.#delay = new Float64Array(count)
    const add = (task: number): void => {
      const ran = Math.max(0, (runs.seconds[task] ?? 0) - (saved?.[task] ?? 0))
      const own = isWithoutDelays ? ran : ran + (runs.delay[task] ?? 0)
      if (this.#hasBlocks) this.#add(task, own)
      else this.#addPlain(task, own)
    }
    // Tasks are created after their dependencies.
    if (!this.#hasBlocks) for (let task = 0; task < count; task++) add(task)
    else for (const task of inOrderOfEnds(state.blocks, query.counts, count)) add(task)
  }

  /** The last task of the longest chain, or -1; among equal chains, the task that ended last. */
  get last(): number {
    let [last, best, end] = [-1, 0, -Infinity]
    for (let task = 0; task < this.#seconds.length; task++) {
      const seconds = this.#seconds[task] ?? 0
      // Negated, so that NaN is also skipped.
      if (!(seconds >= best) || !this.#canEnd(task)) continue
      const { seconds: ran, delay } = this.#runs
      const own = this.#endOf(task)
      if ((ran[task] || 0) + (delay[task] || 0) <= 0 || (seconds === best && own <= end)) continue
      ;[last, best, end] = [task, seconds, own]
    }
    return last
  }

  /** The seconds of the longest chain. */
  get longest(): number {
    let longest = 0
    for (let task = 0; task < this.#seconds.length; task++) {
      const seconds = this.#seconds[task] ?? 0
      if (seconds > longest && this.#canEnd(task)) longest = seconds
    }
    return longest
  }

  /** The longest chain that this task waited for. */
  before(task: number): ChainEnd {
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    const dependency = this.#maxDependency(task)
    let best = dependency === -1 ? noChain : this.#chainOf(dependency)
    if (block === -1) return best
    const delay = this.#delayIn(this.#blocks.delayOfTask, task)
    const sibling = valueAt(this.#blocks.siblingOfTask, task) - 1
    if (sibling !== -1) {
      const since = delay - this.#delayIn(this.#blocks.delayOfTask, sibling)
      best = longer(best, later(this.#chainOf(sibling), since))
    }
    return longer(best, later(this.#beforeBlock(block), delay))
  }

  #addPlain(task: number, own: number): void {
    const before = this.#query.graph.size === 0 ? -1 : this.#maxDependency(task)
    this.#seconds[task] = before === -1 ? own : own + (this.#seconds[before] || 0)
    this.#last[task] = task
  }

  #add(task: number, own: number): void {
    const before = this.before(task)
    const within = this.#within[task]
    const delay = this.#delayIn(this.#blocks.delayOfBlock, task)
    const chain = within === undefined ? null : later(longer(before, within), delay)
    this.#seconds[task] = chain === null || Number.isNaN(own) ? own + before.seconds : chain.seconds
    this.#last[task] = chain?.last ?? task
    this.#delay[task] = chain?.delay ?? 0
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    if (block === -1 || Number.isNaN(own)) return
    const added = later(this.#chainOf(task), -this.#delayIn(this.#blocks.delayOfTask, task))
    this.#within[block] = longer(this.#within[block] ?? noChain, added)
  }

  /** Like `before`, for a block and cached; computes enclosing blocks first. */
  #beforeBlock(task: number): ChainEnd {
    const unknown: number[] = []
    for (let one = task; one !== -1 && this.#before[one] === undefined;) {
      unknown.push(one)
      one = valueAt(this.#blocks.blockOfTask, one) - 1
    }
    for (const one of unknown.toReversed()) this.#before[one] = this.before(one)
    return this.#before[task] ?? noChain
  }

  /** The dependency with the longest chain; among equal ones, the last to end. -1 if none. */
  #maxDependency(task: number): number {
    let [best, seconds] = [-1, 0]
    for (const one of dependenciesOf(this.#query.graph, task)) {
      // `|| 0` replaces the NaN of a task that did not run.
      const own = this.#seconds[one] || 0
      if (own < seconds || (own === seconds && this.#endOf(one) <= this.#endOf(best))) continue
      ;[best, seconds] = [one, own]
    }
    return best
  }

  #endOf(task: number): number {
    return task === -1 ? -Infinity : this.#runs.end[task] || 0
  }

  #chainOf(task: number): ChainEnd {
    const [last = -1, delay = 0] = [this.#last[task], this.#delay[task]]
    return { seconds: this.#seconds[task] || 0, last, delay }
  }

  #delayIn(column: BlockTree['delayOfTask'], task: number): number {
    return this.#isWithoutDelays ? 0 : valueAt(column, task)
  }

  /**
   * Whether a path may end with this task. False for blocks, which take as long as the tasks they
   * wait for, and for canceled tasks, whose duration depends on the caller.
   */
  #canEnd(task: number): boolean {
    if (isBlock(this.#state, task)) return false
    const { counts } = this.#query
    const { totals } = counts
    const isCanceled = (stagesOf(counts, task) & stages.canceled) !== 0
    return !isCanceled || totals.completed + totals.failed + totals.running === 0
  }
}

const longer = (a: ChainEnd, b: ChainEnd): ChainEnd => (b.seconds > a.seconds ? b : a)

const later = ({ seconds, last, delay }: ChainEnd, more: number): ChainEnd =>
  more === 0 ? { seconds, last, delay } : { seconds: seconds + more, last, delay: delay + more }

/** Sorts each task after the tasks it waited for; tasks that ended before any block come first. */
function inOrderOfEnds(
  { ended, endedCount }: BlockTree,
  counts: BoundsQuery['counts'],
  count: number,
): Uint32Array {
  const isOver = (task: number): boolean => hasEnded(stagesOf(counts, task))
  const hasBlock = new Uint8Array(count)
  for (let at = 0; at < endedCount; at++) hasBlock[valueAt(ended, at) - 1] = 1
  const order = new Uint32Array(count + endedCount)
  let size = 0
  const addOthers = (isMeant: (task: number) => boolean): void => {
    for (let task = 0; task < count; task++) {
      if (hasBlock[task] === 0 && isMeant(task)) order[size++] = task
    }
  }
  addOthers(isOver)
  for (let at = 0; at < endedCount; at++) order[size++] = valueAt(ended, at) - 1
  addOthers((task) => !isOver(task))
  return order.subarray(0, size)
}
