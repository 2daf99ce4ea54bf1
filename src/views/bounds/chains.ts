/** Chains of tasks that waited for each other, in the actual run and in hypothetical ones. */

import { blockBackend } from '../../foundation/ids.ts'
import { valueAt } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { hasChildren } from './block-tree.ts'
import type { BoundsQuery, BoundsState } from './bounds-state.ts'
import { BlockChains, type ChainEnd, type ChainTable, DependencyChains } from './chain-tables.ts'

export interface TaskRun {
  readonly start: number
  readonly end: number
  /** Seconds of all its attempts, without the time between them. */
  readonly seconds: number
  /** Seconds of retry delays after failed attempts. */
  readonly delay: number
}

/** `null` for a task that did not run and has no end. */
type RunOf = (task: number) => TaskRun | null

/** What differs in a hypothetical run. */
interface ChainChange {
  readonly secondsOf: (task: number, own: number) => number
  /** Whether blocks are retried without delay. Default `false`. */
  readonly isWithoutDelays?: boolean
}

export const isBlock = ({ requests, requestOfTask }: BoundsState, task: number): boolean =>
  requests[valueAt(requestOfTask, task)]?.backend === blockBackend

export class Chains {
  readonly #state: BoundsState
  readonly #query: BoundsQuery
  readonly #runOf: RunOf
  /** Seconds of each task including its retry delays; NaN for a task that did not run. */
  readonly #owns: Float64Array
  readonly #table: ChainTable

  constructor(state: BoundsState, query: BoundsQuery, runOf: RunOf) {
    this.#state = state
    this.#query = query
    this.#runOf = runOf
    this.#owns = new Float64Array(query.counts.index.names.size)
    for (let task = 0; task < this.#owns.length; task++) {
      const run = runOf(task)
      this.#owns[task] = run === null ? Number.NaN : run.seconds + run.delay
    }
    this.#table = this.#tableWith({ secondsOf: (_, own) => own })
  }

  /** The last task of the longest chain, or -1; of equal chains the one that ended last. */
  get last(): number {
    const { seconds: chains } = this.#table
    let [last, best, end] = [-1, 0, -Infinity]
    for (let task = 0; task < chains.length; task++) {
      const seconds = chains[task] ?? 0
      // Written as a negation so that NaN is skipped as well.
      if (!(seconds >= best && (this.#owns[task] ?? 0) > 0)) continue
      if (!this.#canEnd(task)) continue
      const own = this.#runOf(task)?.end ?? 0
      if (seconds === best && own <= end) continue
      ;[last, best, end] = [task, seconds, own]
    }
    return last
  }

  /** The longest chain that this task waited for. */
  before(task: number): ChainEnd {
    return this.#table.before(task)
  }

  /** The seconds of the longest chain in the hypothetical run. */
  maxSecondsWith(change: ChainChange): number {
    const { seconds: chains } = this.#tableWith(change)
    let longest = 0
    for (let task = 0; task < chains.length; task++) {
      const seconds = chains[task] ?? 0
      if (seconds > longest && this.#canEnd(task)) longest = seconds
    }
    return longest
  }

  #tableWith(change: ChainChange): ChainTable {
    const { counts, graph } = this.#query
    const { blocks } = this.#state
    const secondsOf = (task: number): number =>
      change.secondsOf(task, this.#owns[task] ?? Number.NaN)
    const endOf = (task: number): number => this.#runOf(task)?.end ?? 0
    const parts = { count: this.#owns.length, graph, secondsOf, endOf }
    if (!hasChildren(blocks)) return new DependencyChains(parts)
    return new BlockChains(parts, {
      blocks,
      hasDelays: change.isWithoutDelays !== true,
      hasEnded: (task) => hasEnded(stagesOf(counts, task)),
    })
  }

  /**
   * Whether a path may end with this task. Not a block: its duration is that of the tasks it waits
   * for. Not a canceled task: its duration depends on who canceled it.
   */
  #canEnd(task: number): boolean {
    if (isBlock(this.#state, task)) return false
    const { counts } = this.#query
    const { totals } = counts
    const isCanceled = (stagesOf(counts, task) & stages.canceled) !== 0
    return !isCanceled || totals.completed + totals.failed + totals.running === 0
  }
}
