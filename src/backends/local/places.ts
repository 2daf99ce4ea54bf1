/** Where the jobs of a backend are, from their arrival to their end. */

import { IndexedSet, type Indexed } from '../../runtime/indexed-set.ts'
import type { BackendListener, Job } from '../backend.ts'
import { JobWithNote } from '../job-tag.ts'
import type { WaitingJob } from './job-queue.ts'

export type Lane = 'functions' | 'programs' | 'closures'

export class Place implements WaitingJob, Indexed {
  setIndex = -1
  isWaiting = true
  readonly job: Job
  readonly turn: number
  readonly lane: Lane
  readonly listener: BackendListener

  constructor(job: Job, turn: number, lane: Lane, listener: BackendListener) {
    this.job = job
    this.turn = turn
    this.lane = lane
    this.listener = listener
  }
}

export class Places {
  readonly #all = new IndexedSet<Place>()
  /** Those of jobs that have no slip of their own, or another backend's note on it. */
  readonly #unnoted = new Map<Job, Place>()

  add(place: Place): void {
    this.#all.add(place)
    if (!JobWithNote.leave(place.job, place)) this.#unnoted.set(place.job, place)
  }

  /** `null` for a job that is not here. */
  of(job: Job): Place | null {
    const note = JobWithNote.read(job)
    if (note instanceof Place && this.#all.has(note)) return note
    return this.#unnoted.get(job) ?? null
  }

  delete(place: Place): void {
    this.#all.delete(place)
    this.#unnoted.delete(place.job)
    JobWithNote.remove(place.job, place)
  }

  /** A copy, in the order of arrival. */
  toArray(): Place[] {
    return this.#all.toArray()
  }
}
