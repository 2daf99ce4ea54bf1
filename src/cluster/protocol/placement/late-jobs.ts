/** Compares the run times that jobs state with the remaining time of nodes. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { RunningRequest } from './job-group.ts'

interface TimedJob {
  readonly spec: { readonly resources: ResourceRequest }
}

export interface PlacementTimes {
  /**
   * How long jobs can still run, on `node` or, if it is omitted, on any node. May be `Infinity`.
   */
  readonly secondsLeft: (node?: string) => number
  readonly running: (node: string) => readonly RunningRequest[]
  readonly horizons?: readonly number[]
}

export const unlimitedTimes: PlacementTimes = { secondsLeft: () => Infinity, running: () => [] }

/**
 * Returns a function that tests whether a node has enough time left for the job's estimated run
 * time.
 */
export function outlives(
  job: TimedJob | undefined,
  { secondsLeft }: Pick<PlacementTimes, 'secondsLeft'>,
): (node: { readonly name: string }) => boolean {
  const seconds = job?.spec.resources.seconds
  if (seconds === undefined) return () => true
  return ({ name }) => seconds <= secondsLeft(name)
}

/** Jobs that need more time than is left. They may begin if the deadline is extended. */
export class LateJobs<T extends TimedJob> {
  readonly #secondsLeft: () => number
  readonly #jobs = new Set<T>()
  #minSeconds = Infinity

  constructor(secondsLeft: () => number) {
    this.#secondsLeft = secondsLeft
  }

  get size(): number {
    return this.#jobs.size
  }

  /** Adds a job if it needs more time than is left. Otherwise returns `false`. */
  add(job: T): boolean {
    const { seconds } = job.spec.resources
    if (seconds === undefined || seconds <= this.#secondsLeft()) return false
    this.#jobs.add(job)
    this.#minSeconds = Math.min(this.#minSeconds, seconds)
    return true
  }

  delete(job: T): boolean {
    return this.#jobs.delete(job)
  }

  removeTimely(): T[] {
    if (this.#jobs.size === 0 || this.#minSeconds > this.#secondsLeft()) return []
    const secondsLeft = this.#secondsLeft()
    return this.#removeWhere((job) => (job.spec.resources.seconds ?? 0) <= secondsLeft)
  }

  takeAll(): T[] {
    return this.#removeWhere(() => true)
  }

  #removeWhere(isTaken: (job: T) => boolean): T[] {
    const taken = [...this.#jobs].filter(isTaken)
    for (const job of taken) this.#jobs.delete(job)
    const remainingSeconds = [...this.#jobs].map((job) => job.spec.resources.seconds ?? Infinity)
    this.#minSeconds = remainingSeconds.reduce((min, one) => Math.min(min, one), Infinity)
    return taken
  }
}
