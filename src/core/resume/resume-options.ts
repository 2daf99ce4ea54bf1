/** What a caller may say about a resume, and what it is told. */

import {
  expectBoolean,
  expectKnownKeys,
  expectObject,
  expectOneOf,
} from '../../foundation/options.ts'

/** How a session continues a record. */
export interface ResumeOptions {
  /**
   * Tasks that are DONE and have another code, input or dependencies now: `refuse` (default)
   * rejects their submission, `keep` keeps what they returned, `rerun` runs them again. Only tasks
   * with an own `uid`: any other that has changed is another task.
   */
  readonly changed?: 'refuse' | 'keep' | 'rerun'
  /** Tasks that FAILED stay so and do not run again. Default `false`. */
  readonly keepFailed?: boolean
}

/** The record that a session resumes: its tasks by their state, over all files of its chain. */
export interface ResumedRecord {
  readonly sessionId: string
  /** The files of the run, the oldest first. */
  readonly files: readonly string[]
  readonly done: number
  readonly failed: number
  readonly canceled: number
  readonly unfinished: number
  /** Of those that are done: what they returned was not kept, so they run again. */
  readonly notKept: number
  /** Of those that are done and kept: known by what they are, because they have no own `uid`. */
  readonly unnamed: number
}

export type ResolvedResumeOptions = Required<ResumeOptions>

export function resolveResumeOptions(given: unknown): ResolvedResumeOptions {
  const options: ResumeOptions = expectObject('options', given)
  expectKnownKeys('resume', options, ['changed', 'keepFailed'])
  const { changed = 'refuse', keepFailed = false } = options
  return {
    changed: expectOneOf('changed', changed, ['refuse', 'keep', 'rerun']),
    keepFailed: expectBoolean('keepFailed', keepFailed),
  }
}
