/** Jobs that wait: by priority, retries before new work, then by arrival. It runs nothing. */

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
  /** Without those that were removed. */
  waiting: number
}

export class JobQueue<T extends WaitingJob> {
  readonly #levels = { retries: new Map<number, Level<T>>(), others: new Map<number, Level<T>>() }
  readonly #byPriority = new PriorityQueue<Level<T>>(isLevelBefore)
  /** Removed, but still in the list of their priority. */
  readonly #removed = new Set<T>()
  #length = 0

  get length(): number {
    return this.#length
  }

  /** Of those that wait; `null` if there is none. */
  get lowestPriority(): number | null {
    let lowest: number | null = null
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) {
        if (waiting > 0 && (lowest === null || priority < lowest)) lowest = priority
      }
    }
    return lowest
  }

  /** How many have a higher priority. */
  countAbove(least: number): number {
    let count = 0
    for (const levels of Object.values(this.#levels)) {
      for (const { priority, waiting } of levels.values()) if (priority > least) count += waiting
    }
    return count
  }

  push(waiting: T): void {
    const level = this.#levelOf(waiting)
    if (!this.#isListed(waiting)) level.jobs.push(waiting)
    level.waiting++
    this.#length++
  }

  /** Back to where they were: before all that came after them. */
  putBack(waiting: readonly T[]): void {
    const unlisted = waiting.filter((one) => !this.#isListed(one))
    for (const [level, back] of Map.groupBy(unlisted, (one) => this.#levelOf(one))) {
      mergeInto(level, back.toSorted(bySequence))
    }
    for (const one of waiting) this.#levelOf(one).waiting++
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
      this.#levelsLike(level).delete(level.priority)
    }
  }

  take(): T | undefined {
    const waiting = this.peek()
    const level = this.#byPriority.peek()
    if (waiting === undefined || level === undefined) return undefined
    // The queue must not keep what it gave away.
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

  /** Forgets a job that waits; cheap, however long the queue. */
  remove(job: T): void {
    this.#removed.add(job)
    this.#levelOf(job).waiting--
    this.#length--
    if (this.#removed.size > 1024 && this.#removed.size > this.#length) this.#compact()
  }

  /** One that was removed and comes again, while it is still in the list: it waits there. */
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

/** Those of a level are in order, and most of them come after those that are put back. */
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
