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
   * How to treat DONE tasks whose code, input or dependencies have changed: `refuse` (default)
   * rejects their submission, `keep` keeps their results, `rerun` runs them again. Applies only to
   * tasks with a `uid` option: without it, a changed task is a new task.
   */
  readonly changed?: 'refuse' | 'keep' | 'rerun'
  /** Whether tasks that FAILED stay FAILED instead of running again. Default `false`. */
  readonly keepFailed?: boolean
}

/** The record that a session resumes, and the number of tasks by state over all its files. */
export interface ResumedRecord {
  readonly sessionId: string
  /** The files of the run, the oldest first. */
  readonly files: readonly string[]
  readonly done: number
  readonly failed: number
  readonly canceled: number
  readonly unfinished: number
  /** The number of done tasks that run again, because their results were not kept. */
  readonly notKept: number
  /** The number of kept tasks without a `uid` option, which are identified by their definition. */
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
