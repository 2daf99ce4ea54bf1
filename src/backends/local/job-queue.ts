/** A queue of waiting jobs, ordered by priority, then retries before new jobs, then arrival. */

import { PriorityQueue } from '../../runtime/priority-queue.ts'

export interface WaitingJob {
  readonly spec: { readonly priority: number }
  /** The order of arrival. */
  readonly sequence: number
  readonly isRetry: boolean
}

/** The order in which jobs leave a queue, for `toSorted`. */
export const byTurn = (a: WaitingJob, b: WaitingJob): number =>
  b.spec.priority - a.spec.priority ||
  Number(b.isRetry) - Number(a.isRetry) ||
  a.sequence - b.sequence

/** The retries or the new jobs of one priority; entries before `from` are empty. */
interface Level<T> {
  readonly priority: number
  readonly isRetry: boolean
  jobs: (T | undefined)[]
  from: number
  /** The number of waiting jobs, without those that were removed but are still in `jobs`. */
  waiting: number
}

export class JobQueue<T extends WaitingJob> {
  readonly #levels = { retries: new Map<number, Level<T>>(), others: new Map<number, Level<T>>() }
  readonly #byPriority = new PriorityQueue<Level<T>>(isLevelBefore)
  /** Jobs that were removed but are still in the list of their level. */
  readonly #removed = new Set<T>()
  #length = 0

  get length(): number {
    return this.#length
  }

  /** The lowest priority of all waiting jobs; `null` if none waits. */
  get lowestPriority(): number | null {
    let lowest: number | null = null
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) {
        if (waiting > 0 && (lowest === null || priority < lowest)) lowest = priority
      }
    }
    return lowest
  }

  /** How many jobs have a higher priority than `min`. */
  countAbove(min: number): number {
    let count = 0
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) if (priority > min) count += waiting
    }
    return count
  }

  push(waiting: T): void {
    const level = this.#levelOf(waiting)
    if (!this.#isListed(waiting)) level.jobs.push(waiting)
    level.waiting++
    this.#length++
  }

  /** Returns taken jobs to their former position, ahead of all jobs that arrived later. */
  putBack(waiting: readonly T[]): void {
    const unlisted = waiting.filter((one) => !this.#isListed(one))
    for (const [level, back] of Map.groupBy(unlisted, (one) => this.#levelOf(one))) {
      mergeInto(level, back.toSorted(bySequence))
    }
    for (const one of waiting) this.#levelOf(one).waiting++
    this.#length += waiting.length
  }

  /** The next job, which stays in the queue. */
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
      this.#levelsLike(level).delete(level.priority)
    }
  }

  take(): T | undefined {
    const waiting = this.peek()
    const level = this.#byPriority.peek()
    if (waiting === undefined || level === undefined) return undefined
    // Cleared, so that the queue does not keep a taken job in memory.
    level.jobs[level.from] = undefined
    level.from++
    level.waiting--
    this.#length--
    if (level.from > 4096 && level.from * 2 > level.jobs.length) {
      level.jobs = level.jobs.slice(level.from)
      level.from = 0
    }
    return waiting
  }

  /** Removes a waiting job in constant time, whatever the length of the queue. */
  remove(job: T): void {
    this.#removed.add(job)
    this.#levelOf(job).waiting--
    this.#length--
    if (this.#removed.size > 1024 && this.#removed.size > this.#length) this.#compact()
  }

  /** Restores a removed job that is still in its list, at its old position; otherwise `false`. */
  #isListed(waiting: T): boolean {
    return this.#removed.size > 0 && this.#removed.delete(waiting)
  }

  #compact(): void {
    const { retries, others } = this.#levels
    for (const level of [...retries.values(), ...others.values()]) {
      level.jobs = level.jobs
        .slice(level.from)
        .filter((waiting) => waiting !== undefined && !this.#removed.has(waiting))
      level.from = 0
    }
    this.#removed.clear()
  }

  #levelsLike({ isRetry }: { readonly isRetry: boolean }): Map<number, Level<T>> {
    return isRetry ? this.#levels.retries : this.#levels.others
  }

  #levelOf(waiting: T): Level<T> {
    const levels = this.#levelsLike(waiting)
    const { isRetry } = waiting
    const { priority } = waiting.spec
    const known = levels.get(priority)
    if (known !== undefined) return known
    const added: Level<T> = { priority, isRetry, jobs: [], from: 0, waiting: 0 }
    levels.set(priority, added)
    this.#byPriority.add(added)
    return added
  }
}

const isLevelBefore = <T>(a: Level<T>, b: Level<T>): boolean =>
  a.priority === b.priority ? a.isRetry && !b.isRetry : a.priority > b.priority

/**
 * Inserts the sorted jobs `inOrder` into the sorted list of a level. Fast, because most jobs of the
 * level arrived later.
 */
function mergeInto<T extends WaitingJob>(level: Level<T>, inOrder: readonly T[]): void {
  const { jobs, from } = level
  const last = inOrder.at(-1)?.sequence ?? 0
  let end = from
  while (end < jobs.length && (jobs[end]?.sequence ?? 0) < last) end++
  const merged = [...jobs.slice(from, end), ...inOrder].toSorted(bySequence)
  const start = from - inOrder.length
  if (start >= 0) for (const [at, one] of merged.entries()) jobs[start + at] = one
  else level.jobs = [...merged, ...jobs.slice(end)]
  level.from = Math.max(0, start)
}

const bySequence = (a: WaitingJob | undefined, b: WaitingJob | undefined): number =>
  (a?.sequence ?? 0) - (b?.sequence ?? 0)
