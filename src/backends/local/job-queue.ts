/**
 * A queue of waiting jobs. They are ordered by priority, then retries before new jobs, then by
 * arrival.
 */

import { PriorityQueue } from '../../runtime/priority-queue.ts'

export interface WaitingJob {
  readonly spec: { readonly priority: number }
  readonly sequence: number
  readonly isRetry: boolean
}

/** Compares jobs by the order in which they leave a queue. */
export const byTurn = (a: WaitingJob, b: WaitingJob): number =>
  b.spec.priority - a.spec.priority ||
  Number(b.isRetry) - Number(a.isRetry) ||
  a.sequence - b.sequence

/** Either the retries or the new jobs of one priority. Entries before `head` are empty. */
interface PriorityLevel<T> {
  readonly priority: number
  readonly isRetry: boolean
  jobs: (T | undefined)[]
  head: number
  /** The number of waiting jobs. Removed jobs that are still in `jobs` do not count. */
  waiting: number
}

export class JobQueue<T extends WaitingJob> {
  readonly #levels = {
    retries: new Map<number, PriorityLevel<T>>(),
    others: new Map<number, PriorityLevel<T>>(),
  }
  readonly #byPriority = new PriorityQueue<PriorityLevel<T>>(isLevelBefore)
  readonly #removed = new Set<T>()
  #length = 0

  get length(): number {
    return this.#length
  }

  get lowestPriority(): number | null {
    let lowestPriority: number | null = null
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) {
        if (waiting > 0 && (lowestPriority === null || priority < lowestPriority))
          lowestPriority = priority
      }
    }
    return lowestPriority
  }

  countAbove(min: number): number {
    let count = 0
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) if (priority > min) count += waiting
    }
    return count
  }

  push(waiting: T): void {
    const level = this.#levelOf(waiting)
    if (!this.#restoreRemoved(waiting)) level.jobs.push(waiting)
    level.waiting++
    this.#length++
  }

  /** Puts jobs back at their former positions, ahead of all jobs that arrived later. */
  requeue(waiting: readonly T[]): void {
    const unlisted = waiting.filter((one) => !this.#restoreRemoved(one))
    for (const [level, back] of Map.groupBy(unlisted, (one) => this.#levelOf(one))) {
      mergeSorted(level, back.toSorted(bySequence))
    }
    for (const one of waiting) this.#levelOf(one).waiting++
    this.#length += waiting.length
  }

  peek(): T | undefined {
    for (;;) {
      const level = this.#byPriority.peek()
      if (level === undefined) return undefined
      for (; level.head < level.jobs.length; level.head++) {
        const waiting = level.jobs[level.head]
        if (waiting !== undefined && !this.#removed.delete(waiting)) return waiting
        level.jobs[level.head] = undefined
      }
      this.#byPriority.pop()
      this.#levelMapOf(level).delete(level.priority)
    }
  }

  pop(): T | undefined {
    const waiting = this.peek()
    const level = this.#byPriority.peek()
    if (waiting === undefined || level === undefined) return undefined
    // Drops the reference to the job, so that its memory can be freed.
    level.jobs[level.head] = undefined
    level.head++
    level.waiting--
    this.#length--
    if (level.head > 4096 && level.head * 2 > level.jobs.length) {
      level.jobs = level.jobs.slice(level.head)
      level.head = 0
    }
    return waiting
  }

  /** Removes a waiting job in constant time. */
  remove(job: T): void {
    this.#removed.add(job)
    this.#levelOf(job).waiting--
    this.#length--
    if (this.#removed.size > 1024 && this.#removed.size > this.#length) this.#compact()
  }

  #restoreRemoved(waiting: T): boolean {
    return this.#removed.size > 0 && this.#removed.delete(waiting)
  }

  #compact(): void {
    const { retries, others } = this.#levels
    for (const level of [...retries.values(), ...others.values()]) {
      level.jobs = level.jobs
        .slice(level.head)
        .filter((waiting) => waiting !== undefined && !this.#removed.has(waiting))
      level.head = 0
    }
    this.#removed.clear()
  }

  #levelMapOf({ isRetry }: { readonly isRetry: boolean }): Map<number, PriorityLevel<T>> {
    return isRetry ? this.#levels.retries : this.#levels.others
  }

  #levelOf(waiting: T): PriorityLevel<T> {
    const levels = this.#levelMapOf(waiting)
    const { isRetry } = waiting
    const { priority } = waiting.spec
    const known = levels.get(priority)
    if (known !== undefined) return known
    const added: PriorityLevel<T> = { priority, isRetry, jobs: [], head: 0, waiting: 0 }
    levels.set(priority, added)
    this.#byPriority.add(added)
    return added
  }
}

const isLevelBefore = <T>(a: PriorityLevel<T>, b: PriorityLevel<T>): boolean =>
  a.priority === b.priority ? a.isRetry && !b.isRetry : a.priority > b.priority

/**
 * Inserts the sorted jobs `inOrder` into the sorted list of a level. This is fast, because most
 * jobs of the level arrived later.
 */
function mergeSorted<T extends WaitingJob>(level: PriorityLevel<T>, inOrder: readonly T[]): void {
  const { jobs, head } = level
  const last = inOrder.at(-1)?.sequence ?? 0
  let end = head
  while (end < jobs.length && (jobs[end]?.sequence ?? 0) < last) end++
  const merged = [...jobs.slice(head, end), ...inOrder].toSorted(bySequence)
  const start = head - inOrder.length
  if (start >= 0) for (const [at, one] of merged.entries()) jobs[start + at] = one
  else level.jobs = [...merged, ...jobs.slice(end)]
  level.head = Math.max(0, start)
}

const bySequence = (a: WaitingJob | undefined, b: WaitingJob | undefined): number =>
  (a?.sequence ?? 0) - (b?.sequence ?? 0)
