/** Compares the stated run times of jobs with the remaining time of nodes. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { RunningRequest } from './job-group.ts'

interface TimedJob {
  readonly spec: { readonly resources: ResourceRequest }
}

/** The times that placement needs. */
export interface PlacementTimes {
  /** Seconds until nothing can run on this node, or on any node; `Infinity` if unlimited. */
  readonly secondsLeft: (node?: string) => number
  /** The jobs that a node has now. */
  readonly running: (node: string) => readonly RunningRequest[]
  /** Jobs that run longer than one of these values are queued separately from shorter ones. */
  readonly horizons?: readonly number[]
}

export const timeless: PlacementTimes = { secondsLeft: () => Infinity, running: () => [] }

/** Whether the node's remaining time is enough for the job, by the job's own estimate. */
export function outlives(
  job: TimedJob | undefined,
  { secondsLeft }: Pick<PlacementTimes, 'secondsLeft'>,
): (node: { readonly name: string }) => boolean {
  const seconds = job?.spec.resources.seconds
  if (seconds === undefined) return () => true
  return ({ name }) => seconds <= secondsLeft(name)
}

/** Jobs that need more time than is left, unless the deadline is extended. */
export class LateJobs<T extends TimedJob> {
  readonly #secondsLeft: () => number
  readonly #jobs = new Set<T>()
  /** The minimum time that any of these jobs needs. */
  #shortest = Infinity

  constructor(secondsLeft: () => number) {
    this.#secondsLeft = secondsLeft
  }

  get size(): number {
    return this.#jobs.size
  }

  /** `false` if enough time is left for the job. */
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

  /** Takes jobs that may begin now, because the deadline was extended. */
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
    this.#shortest = left.reduce((min, one) => Math.min(min, one), Infinity)
    return taken
  }
}
