/** The options and the result of a resume. */

import {
  expectBoolean,
  expectKnownKeys,
  expectObject,
  expectOneOf,
} from '../../foundation/options.ts'

/** How a session continues a record. */
export interface ResumeOptions {
  /**
   * For tasks that are DONE, but now have other code, input or dependencies: `refuse` (default)
   * rejects their submission, `keep` keeps what they returned, `rerun` runs them again. Only for
   * tasks with a `uid` of their own: without one, a changed task is a different task.
   */
  readonly changed?: 'refuse' | 'keep' | 'rerun'
  /** Whether tasks that FAILED stay FAILED instead of running again. Default `false`. */
  readonly keepFailed?: boolean
}

/** The record that a session resumes: the number of its tasks by state, over all its files. */
export interface ResumedRecord {
  readonly sessionId: string
  /** The files of the run, the oldest first. */
  readonly files: readonly string[]
  readonly done: number
  readonly failed: number
  readonly canceled: number
  readonly unfinished: number
  /** The number of done tasks whose results were not kept, so that they run again. */
  readonly notKept: number
  /** The number of done and kept tasks that are identified by definition, having no own `uid`. */
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
