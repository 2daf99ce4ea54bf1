/** Lets a backend attach an object to a job. This is faster than a map of jobs. */

import type { Job } from './backend.ts'

/**
 * The tag is a private field. It is therefore not copied with the job, and can be set on a frozen
 * job.
 */
export abstract class TaggedJob {
  #tag: object | null = null

  /** Returns `false` if the job lacks this base class, or if another backend has tagged it. */
  static setTag(job: Job, tag: object): boolean {
    if (!(#tag in job) || job.#tag !== null) return false
    job.#tag = tag
    return true
  }

  static tagOf(job: Job): object | null {
    return #tag in job ? job.#tag : null
  }

  static removeTag(job: Job, tag: object): void {
    if (#tag in job && job.#tag === tag) job.#tag = null
  }
}
