/** Where the jobs of a backend are, from their arrival to their end. */

import { IndexedSet, type Indexed } from '../../runtime/indexed-set.ts'
import type { BackendListener, ConnectedSession, Job } from '../backend.ts'
import { TaggedJob } from '../job-tag.ts'
import type { WaitingJob } from './job-queue.ts'

export type Lane = 'functions' | 'programs' | 'closures'

/** Who submitted a job. */
export interface Client {
  readonly listener: BackendListener
  readonly session: ConnectedSession
}

export class Place implements WaitingJob, Indexed {
  setIndex = -1
  isWaiting = true
  readonly job: Job
  readonly turn: number
  readonly lane: Lane
  readonly client: Client

  constructor(job: Job, turn: number, lane: Lane, client: Client) {
    this.job = job
    this.turn = turn
    this.lane = lane
    this.client = client
  }
}

export class Places {
  readonly #all = new IndexedSet<Place>()
  /** Jobs without a tag of their own (copies), or with another backend's tag. */
  readonly #untagged = new Map<Job, Place>()

  add(place: Place): void {
    this.#all.add(place)
    if (!TaggedJob.setTag(place.job, place)) this.#untagged.set(place.job, place)
  }

  /** `null` for a job that is not here. */
  of(job: Job): Place | null {
    const tag = TaggedJob.tagOf(job)
    if (tag instanceof Place && this.#all.has(tag)) return tag
    return this.#untagged.get(job) ?? null
  }

  delete(place: Place): void {
    this.#all.delete(place)
    this.#untagged.delete(place.job)
    TaggedJob.removeTag(place.job, place)
  }

  /** A copy, in the order of arrival. */
  toArray(): Place[] {
    return this.#all.toArray()
  }
}
