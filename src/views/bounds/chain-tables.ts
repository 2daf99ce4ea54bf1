/**
 * How long the longest chain is that ends with each task. Without blocks a task waits for its
 * dependencies only. One that a block made waits for those of the block as well, and for what had
 * ended in the block when it was made; a block takes as long as the tasks that it made.
 */

import { valueAt } from '../columns.ts'
import { dependenciesOf, type GraphState } from '../panels/graph.ts'
import type { BlockTree } from './block-tree.ts'

export interface ChainTable {
  /** By the last task; NaN for one that did not run. */
  readonly seconds: Float64Array
  /** The chain that this task waited for longest. */
  before(task: number): ChainEnd
}

/** A chain by its last task, -1 for none. */
export interface ChainEnd {
  readonly seconds: number
  readonly last: number
  /** Delays between attempts of blocks, after the last task; a part of the seconds. */
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

  /** A task is created after those that it waits for, so their chains are known by then. */
  constructor(parts: ChainParts) {
    this.#parts = parts
    const { count, graph, secondsOf } = parts
    this.seconds = new Float64Array(count)
    const hasEdges = graph.size > 0
    for (let task = 0; task < count; task++) {
      const own = secondsOf(task)
      this.seconds[task] = hasEdges ? own + this.#longestBefore(task) : own
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

  #longestBefore(task: number): number {
    let longest = 0
    for (const one of dependenciesOf(this.#parts.graph, task)) {
      // A task that did not run has no chain.
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
  /** Whether the delays between attempts of blocks count. */
  readonly hasDelays: boolean
  readonly hasEnded: (task: number) => boolean
}

export class BlockChains implements ChainTable {
  readonly seconds: Float64Array
  readonly #parts: ChainParts
  readonly #blocks: BlockTree
  readonly #hasDelays: boolean
  /** By task: the last one of its chain, which for a block is a task that it made. */
  readonly #last: Int32Array
  readonly #delay: Float64Array
  /** By block: the longest chain of a task that it made, less the delays of the block before. */
  readonly #within: (ChainEnd | undefined)[] = []
  /** By block: the chain that it waited for. */
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
    let best = this.#longestDependency(task)
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

  /** `before`, computed once for a block, from the outermost one inwards. */
  #beforeBlock(task: number): ChainEnd {
    const unknown: number[] = []
    for (let one = task; one !== -1 && this.#before[one] === undefined;) {
      unknown.push(one)
      one = valueAt(this.#blocks.blockOfTask, one) - 1
    }
    for (const one of unknown.toReversed()) this.#before[one] = this.before(one)
    return this.#before[task] ?? noChain
  }

  #longestDependency(task: number): ChainEnd {
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

/** A task comes after what it waited for; what ended before the first block comes first. */
function inOrderOfEnds(
  { ended, endedCount }: BlockTree,
  count: number,
  hasEnded: (task: number) => boolean,
): Uint32Array {
  const isTold = new Uint8Array(count)
  for (let at = 0; at < endedCount; at++) isTold[valueAt(ended, at) - 1] = 1
  const order = new Uint32Array(count + endedCount)
  let size = 0
  const addOthers = (isMeant: (task: number) => boolean): void => {
    for (let task = 0; task < count; task++) {
      if (isTold[task] === 0 && isMeant(task)) order[size++] = task
    }
  }
  addOthers(hasEnded)
  for (let at = 0; at < endedCount; at++) order[size++] = valueAt(ended, at) - 1
  addOthers((task) => !hasEnded(task))
  return order.subarray(0, size)
}
