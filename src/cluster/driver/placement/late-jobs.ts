/** Jobs that say how long they run, and for how long nodes are there. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { RunningRequest } from './job-group.ts'

interface TimedJob {
  readonly spec: { readonly resources: ResourceRequest }
}

/** What placement asks about time. */
export interface PlacementTimes {
  /** Until nothing runs any more, on this node or on any; `Infinity` without an end. */
  readonly secondsLeft: (node?: string) => number
  /** What a node has now. */
  readonly running: (node: string) => readonly RunningRequest[]
  /** Jobs that run for more and for less than one of these do not wait for the same nodes. */
  readonly horizons?: readonly number[]
}

export const timeless: PlacementTimes = { secondsLeft: () => Infinity, running: () => [] }

/** Whether a node is there until the job has ended, by what that said. */
export function lastsFor(
  job: TimedJob | undefined,
  { secondsLeft }: Pick<PlacementTimes, 'secondsLeft'>,
): (node: { readonly name: string }) => boolean {
  const seconds = job?.spec.resources.seconds
  if (seconds === undefined) return () => true
  return ({ name }) => seconds <= secondsLeft(name)
}

/** Jobs that need longer than is left until nothing runs any more, unless that is put off. */
export class LateJobs<T extends TimedJob> {
  readonly #secondsLeft: () => number
  readonly #jobs = new Set<T>()
  /** No job here needs less. */
  #shortest = Infinity

  constructor(secondsLeft: () => number) {
    this.#secondsLeft = secondsLeft
  }

  get size(): number {
    return this.#jobs.size
  }

  /** `false` for a job that is in time. */
  add(job: T): boolean {
    const { seconds } = job.spec.resources
    if (seconds === undefined || seconds <= this.#secondsLeft()) return false
    this.#jobs.add(job)
    this.#shortest = Math.min(this.#shortest, seconds)
    return true
  }

  delete(job: T): boolean {
    return this.#jobs.delete(job)
  }

  /** Those that may begin now, because the end was moved. */
  takeTimely(): T[] {
    if (this.#jobs.size === 0 || this.#shortest > this.#secondsLeft()) return []
    const left = this.#secondsLeft()
    return this.#take((job) => (job.spec.resources.seconds ?? 0) <= left)
  }

  takeAll(): T[] {
    return this.#take(() => true)
  }

  #take(isTaken: (job: T) => boolean): T[] {
    const taken = [...this.#jobs].filter(isTaken)
    for (const job of taken) this.#jobs.delete(job)
    const left = [...this.#jobs].map((job) => job.spec.resources.seconds ?? Infinity)
    this.#shortest = left.reduce((least, one) => Math.min(least, one), Infinity)
    return taken
  }
}
