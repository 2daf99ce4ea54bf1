/**
 * The length of the longest chain that ends with each task. Without blocks a task waits only for
 * its dependencies. A task that a block created also waits for the dependencies of the block and
 * for what had ended in the block at its creation; a block takes as long as the tasks it created.
 */

import { valueAt } from '../columns.ts'
import { dependenciesOf, type GraphState } from '../panels/graph.ts'
import type { BlockTree } from './block-tree.ts'

export interface ChainTable {
  /** Length of the chain by its last task; NaN for a task that did not run. */
  readonly seconds: Float64Array
  /** The longest chain that this task waited for. */
  before(task: number): ChainEnd
}

/** A chain, known by its last task; -1 for no chain. */
export interface ChainEnd {
  readonly seconds: number
  readonly last: number
  /** The part of `seconds` that are retry delays of blocks after the last task. */
  readonly delay: number
}

export interface ChainParts {
  readonly count: number
  readonly graph: GraphState
  /** NaN for a task that did not run. */
  readonly secondsOf: (task: number) => number
  readonly endOf: (task: number) => number
}

const noChain: ChainEnd = { seconds: 0, last: -1, delay: 0 }

export class DependencyChains implements ChainTable {
  readonly seconds: Float64Array
  readonly #parts: ChainParts

  /** Tasks are created after their dependencies, whose chains are therefore computed first. */
  constructor(parts: ChainParts) {
    this.#parts = parts
    const { count, graph, secondsOf } = parts
    this.seconds = new Float64Array(count)
    const hasEdges = graph.size > 0
    for (let task = 0; task < count; task++) {
      const own = secondsOf(task)
      this.seconds[task] = hasEdges ? own + this.#maxSecondsBefore(task) : own
    }
  }

  before(task: number): ChainEnd {
    let best = noChain
    for (const last of dependenciesOf(this.#parts.graph, task)) {
      const seconds = this.seconds[last] ?? Number.NaN
      const isLater = seconds === best.seconds && this.#endOf(last) > this.#endOf(best.last)
      if (seconds > best.seconds || isLater) best = { seconds, last, delay: 0 }
    }
    return best
  }

  #maxSecondsBefore(task: number): number {
    let longest = 0
    for (const one of dependenciesOf(this.#parts.graph, task)) {
      // `|| 0` skips the NaN of a task that did not run.
      longest = Math.max(longest, this.seconds[one] || 0)
    }
    return longest
  }

  #endOf(task: number): number {
    return task === -1 ? -Infinity : this.#parts.endOf(task)
  }
}

export interface BlockParts {
  readonly blocks: BlockTree
  /** Whether the retry delays of blocks count. */
  readonly hasDelays: boolean
  readonly hasEnded: (task: number) => boolean
}

export class BlockChains implements ChainTable {
  readonly seconds: Float64Array
  readonly #parts: ChainParts
  readonly #blocks: BlockTree
  readonly #hasDelays: boolean
  /** By task: the last task of its chain; for a block, a task that it created. */
  readonly #last: Int32Array
  readonly #delay: Float64Array
  /** By block: the longest chain of a task it created, without the block's delays before. */
  readonly #within: (ChainEnd | undefined)[] = []
  /** By block: the longest chain that it waited for. */
  readonly #before: (ChainEnd | undefined)[] = []

  constructor(parts: ChainParts, { blocks, hasDelays, hasEnded }: BlockParts) {
    this.#parts = parts
    this.#blocks = blocks
    this.#hasDelays = hasDelays
    this.seconds = new Float64Array(parts.count)
    this.#last = new Int32Array(parts.count)
    this.#delay = new Float64Array(parts.count)
    for (const task of inOrderOfEnds(blocks, parts.count, hasEnded)) this.#addTask(task)
  }

  before(task: number): ChainEnd {
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    let best = this.#criticalDependency(task)
    if (block === -1) return best
    const delay = this.#delayBefore(task)
    const sibling = valueAt(this.#blocks.siblingOfTask, task) - 1
    if (sibling !== -1) {
      best = longer(best, later(this.#chainOf(sibling), delay - this.#delayBefore(sibling)))
    }
    return longer(best, later(this.#beforeBlock(block), delay))
  }

  #addTask(task: number): void {
    const before = this.before(task)
    const within = this.#within[task]
    const own = this.#parts.secondsOf(task)
    const chain =
      within === undefined
        ? { seconds: own + before.seconds, last: task, delay: 0 }
        : later(longer(before, within), this.#delayOf(task))
    this.seconds[task] = Number.isNaN(own) ? own : chain.seconds
    this.#last[task] = chain.last
    this.#delay[task] = chain.delay
    const block = valueAt(this.#blocks.blockOfTask, task) - 1
    if (block === -1 || Number.isNaN(own)) return
    const added = later(chain, -this.#delayBefore(task))
    this.#within[block] = longer(this.#within[block] ?? noChain, added)
  }

  /** `before` of a block, cached; computes that of the enclosing blocks first. */
  #beforeBlock(task: number): ChainEnd {
    const unknown: number[] = []
    for (let one = task; one !== -1 && this.#before[one] === undefined;) {
      unknown.push(one)
      one = valueAt(this.#blocks.blockOfTask, one) - 1
    }
    for (const one of unknown.toReversed()) this.#before[one] = this.before(one)
    return this.#before[task] ?? noChain
  }

  #criticalDependency(task: number): ChainEnd {
    let best = noChain
    for (const one of dependenciesOf(this.#parts.graph, task)) {
      best = longer(best, this.#chainOf(one))
    }
    return best
  }

  #chainOf(task: number): ChainEnd {
    const [last = -1, delay = 0] = [this.#last[task], this.#delay[task]]
    return { seconds: this.seconds[task] || 0, last, delay }
  }

  #delayBefore(task: number): number {
    return this.#hasDelays ? valueAt(this.#blocks.delayOfTask, task) : 0
  }

  #delayOf(block: number): number {
    return this.#hasDelays ? valueAt(this.#blocks.delayOfBlock, block) : 0
  }
}

const longer = (a: ChainEnd, b: ChainEnd): ChainEnd => (b.seconds > a.seconds ? b : a)

const later = ({ seconds, last, delay }: ChainEnd, more: number): ChainEnd =>
  more === 0 ? { seconds, last, delay } : { seconds: seconds + more, last, delay: delay + more }

/** Sorts each task after what it waited for. Tasks that ended before the first block come first. */
function inOrderOfEnds(
  { ended, endedCount }: BlockTree,
  count: number,
  hasEnded: (task: number) => boolean,
): Uint32Array {
  const hasBlock = new Uint8Array(count)
  for (let at = 0; at < endedCount; at++) hasBlock[valueAt(ended, at) - 1] = 1
  const order = new Uint32Array(count + endedCount)
  let size = 0
  const addOthers = (isMeant: (task: number) => boolean): void => {
    for (let task = 0; task < count; task++) {
      if (hasBlock[task] === 0 && isMeant(task)) order[size++] = task
    }
  }
  addOthers(hasEnded)
  for (let at = 0; at < endedCount; at++) order[size++] = valueAt(ended, at) - 1
  addOthers((task) => !hasEnded(task))
  return order.subarray(0, size)
}
