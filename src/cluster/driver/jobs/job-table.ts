/** The jobs of a driver that have not ended, by the index or uid that messages contain. */

import type { DriverJob } from '../agent-link.ts'
import { TaggedJob } from '../../../backends/job-tag.ts'

/**
 * Jobs by an index that is sent to agents and comes back: an array access instead of a lookup by
 * string. Jobs whose index was assigned by another start of the driver are found by uid.
 */
export class JobTable {
  readonly #jobs: (DriverJob | undefined)[] = []
  readonly #free: number[] = []
  /** Created at the first index that does not match, dropped when no job is left. */
  #byUid: Map<string, DriverJob> | null = null

  /** The index of the job that is added next. */
  get nextIndex(): number {
    return this.#free.at(-1) ?? this.#jobs.length
  }

  add(one: DriverJob): void {
    if (one.index === this.#jobs.length) this.#jobs.push(one)
    else {
      this.#free.pop()
      this.#jobs[one.index] = one
    }
    this.#byUid?.set(one.uid, one)
    TaggedJob.setTag(one.job, one)
  }

  find(index: number, uid: string): DriverJob | undefined {
    const one = this.#jobs[index]
    if (one?.uid === uid) return one
    this.#byUid ??= new Map(this.toArray().map((job) => [job.uid, job]))
    return this.#byUid.get(uid)
  }

  delete(one: DriverJob): void {
    if (this.#jobs[one.index] !== one) return
    this.#jobs[one.index] = undefined
    this.#free.push(one.index)
    TaggedJob.removeTag(one.job, one)
    if (this.#byUid?.get(one.uid) === one) this.#byUid.delete(one.uid)
    if (this.#free.length === this.#jobs.length) this.#clear()
  }

  toArray(): DriverJob[] {
    const all = this.#jobs.filter((one) => one !== undefined)
    return all.toSorted((a, b) => a.sequence - b.sequence)
  }

  #clear(): void {
    this.#jobs.length = 0
    this.#free.length = 0
    this.#byUid = null
  }
}
