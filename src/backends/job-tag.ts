/** A slip on a job: quicker for a backend than a table of all the jobs that it has. */

import type { Job } from './backend.ts'

/**
 * What a session's jobs are. The slip is private: it is neither data of the job nor copied with it,
 * and a frozen job has one, too.
 */
export abstract class JobWithNote {
  #note: object | null = null

  /** `false` where there is no slip, or another backend has written on it. */
  static leave(job: Job, note: object): boolean {
    if (!(#note in job) || job.#note !== null) return false
    job.#note = note
    return true
  }

  static read(job: Job): object | null {
    return #note in job ? job.#note : null
  }

  static remove(job: Job, note: object): void {
    if (#note in job && job.#note === note) job.#note = null
  }
}
