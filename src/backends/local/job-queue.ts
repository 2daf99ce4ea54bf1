/** Jobs that wait, by priority and then by arrival. It runs nothing. */

import { PriorityQueue } from '../../runtime/priority-queue.ts'

export interface WaitingJob {
  readonly spec: { readonly priority: number }
  /** The order of arrival. */
  readonly sequence: number
}

/** The jobs of one priority; entries before `from` are empty. */
interface Level<T> {
  readonly priority: number
  jobs: (T | undefined)[]
  from: number
}

export class JobQueue<T extends WaitingJob> {
  readonly #levels = new Map<number, Level<T>>()
  readonly #byPriority = new PriorityQueue<Level<T>>((a, b) => a.priority > b.priority)
  /** Removed, but still in the list of their priority. */
  readonly #removed = new Set<T>()
  #length = 0

  get length(): number {
    return this.#length
  }

  push(waiting: T): void {
    this.#levelOf(waiting.spec.priority).jobs.push(waiting)
    this.#length++
  }

  /** Back to where they were: before all that came after them. */
  putBack(waiting: readonly T[]): void {
    for (const [priority, back] of Map.groupBy(waiting, ({ spec }) => spec.priority)) {
      const level = this.#levelOf(priority)
      const inOrder = back.toSorted(bySequence)
      const head = level.jobs[level.from]
      const isBeforeAll = head === undefined || (inOrder.at(-1)?.sequence ?? 0) < head.sequence
      if (isBeforeAll && level.from >= inOrder.length) {
        level.from -= inOrder.length
        for (const [at, one] of inOrder.entries()) level.jobs[level.from + at] = one
      } else {
        level.jobs = [...inOrder, ...level.jobs.slice(level.from)].toSorted(bySequence)
        level.from = 0
      }
    }
    this.#length += waiting.length
  }

  /** The next one, without taking it. */
  peek(): T | undefined {
    for (;;) {
      const level = this.#byPriority.peek()
      if (level === undefined) return undefined
      for (; level.from < level.jobs.length; level.from++) {
        const waiting = level.jobs[level.from]
        if (waiting !== undefined && !this.#removed.delete(waiting)) return waiting
        level.jobs[level.from] = undefined
      }
      this.#byPriority.take()
      this.#levels.delete(level.priority)
    }
  }

  take(): T | undefined {
    const waiting = this.peek()
    const level = this.#byPriority.peek()
    if (waiting === undefined || level === undefined) return undefined
    // The queue must not keep what it gave away.
    level.jobs[level.from] = undefined
    level.from++
    this.#length--
    if (level.from > 4096 && level.from * 2 > level.jobs.length) {
      level.jobs = level.jobs.slice(level.from)
      level.from = 0
    }
    return waiting
  }

  /** Forgets a job that waits; cheap, however long the queue. */
  remove(job: T): void {
    this.#removed.add(job)
    this.#length--
    if (this.#removed.size > 1024 && this.#removed.size > this.#length) this.#compact()
  }

  #compact(): void {
    for (const level of this.#levels.values()) {
      level.jobs = level.jobs
        .slice(level.from)
        .filter((waiting) => waiting !== undefined && !this.#removed.has(waiting))
      level.from = 0
    }
    this.#removed.clear()
  }

  #levelOf(priority: number): Level<T> {
    const known = this.#levels.get(priority)
    if (known !== undefined) return known
    const added: Level<T> = { priority, jobs: [], from: 0 }
    this.#levels.set(priority, added)
    this.#byPriority.add(added)
    return added
  }
}

const bySequence = (a: WaitingJob | undefined, b: WaitingJob | undefined): number =>
  (a?.sequence ?? 0) - (b?.sequence ?? 0)
