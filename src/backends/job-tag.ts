/** Lets a backend attach an object to a job: faster than a map of all the jobs that it has. */

import type { Job } from './backend.ts'

/**
 * The base of a session's jobs, and of an agent's. The tag is private: it is neither data of the
 * job nor copied with it, and a frozen job can be tagged, too. A job without this base has no tag:
 * its backend keeps it in a map.
 */
export abstract class TaggedJob {
  #tag: object | null = null

  /** `false` for a job without a tag of its own, and for one that another backend has tagged. */
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
