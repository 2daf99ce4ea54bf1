/** Lets a backend attach an object to a job, which is faster than looking each job up in a map. */

import type { Job } from './backend.ts'

/**
 * The base class of the jobs of sessions and agents. The tag is private: it is not part of the
 * job's data, is not copied with it, and can be set on a frozen job. A job without this base class
 * has no tag; its backend looks it up in a map.
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
