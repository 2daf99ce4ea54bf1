/** Jobs that wait, by priority and then by arrival. It runs nothing. */

import { PriorityQueue } from '../../runtime/priority-queue.ts'
import type { Job } from '../backend.ts'

export interface WaitingJob {
  readonly job: Job
  /** The order of arrival. */
  readonly turn: number
}

/** The jobs of one priority. Places before `from` are empty; so are those of removed jobs. */
interface Rank<T> {
  readonly priority: number
  places: (T | undefined)[]
  from: number
}

export class JobQueue<T extends WaitingJob> {
  readonly #ranks = new Map<number, Rank<T>>()
  readonly #byPriority = new PriorityQueue<Rank<T>>((a, b) => a.priority > b.priority)
  /** Removed, but still in their places. */
  readonly #removed = new Set<Job>()
  #length = 0

  get length(): number {
    return this.#length
  }

  push(waiting: T): void {
    this.#rankOf(waiting.job.spec.priority).places.push(waiting)
    this.#length++
  }

  /** Back to where they were: before all that came after them. */
  putBack(waiting: readonly T[]): void {
    for (const [priority, back] of Map.groupBy(waiting, ({ job }) => job.spec.priority)) {
      const rank = this.#rankOf(priority)
      const inOrder = back.toSorted(byTurn)
      const head = rank.places[rank.from]
      const isBeforeAll = head === undefined || (inOrder.at(-1)?.turn ?? 0) < head.turn
      if (isBeforeAll && rank.from >= inOrder.length) {
        rank.from -= inOrder.length
        for (const [at, one] of inOrder.entries()) rank.places[rank.from + at] = one
      } else {
        rank.places = [...inOrder, ...rank.places.slice(rank.from)].toSorted(byTurn)
        rank.from = 0
      }
    }
    this.#length += waiting.length
  }

  /** The next one, without taking it. */
  peek(): T | undefined {
    for (;;) {
      const rank = this.#byPriority.peek()
      if (rank === undefined) return undefined
      for (; rank.from < rank.places.length; rank.from++) {
        const waiting = rank.places[rank.from]
        if (waiting !== undefined && !this.#removed.delete(waiting.job)) return waiting
        rank.places[rank.from] = undefined
      }
      this.#byPriority.take()
      this.#ranks.delete(rank.priority)
    }
  }

  take(): T | undefined {
    const waiting = this.peek()
    const rank = this.#byPriority.peek()
    if (waiting === undefined || rank === undefined) return undefined
    // The queue must not keep what it gave away.
    rank.places[rank.from] = undefined
    rank.from++
    this.#length--
    if (rank.from > 4096 && rank.from * 2 > rank.places.length) {
      rank.places = rank.places.slice(rank.from)
      rank.from = 0
    }
    return waiting
  }

  /** Forgets a job that waits; cheap, however long the queue. */
  remove(job: Job): void {
    this.#removed.add(job)
    this.#length--
    if (this.#removed.size > 1024 && this.#removed.size > this.#length) this.#compact()
  }

  #compact(): void {
    for (const rank of this.#ranks.values()) {
      rank.places = rank.places
        .slice(rank.from)
        .filter((waiting) => waiting !== undefined && !this.#removed.has(waiting.job))
      rank.from = 0
    }
    this.#removed.clear()
  }

  #rankOf(priority: number): Rank<T> {
    const known = this.#ranks.get(priority)
    if (known !== undefined) return known
    const added: Rank<T> = { priority, places: [], from: 0 }
    this.#ranks.set(priority, added)
    this.#byPriority.add(added)
    return added
  }
}

/** Empty places last; there are none before them. */
const byTurn = (a: WaitingJob | undefined, b: WaitingJob | undefined): number =>
  (a?.turn ?? 0) - (b?.turn ?? 0)
