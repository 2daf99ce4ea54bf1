/**
 * Prints the command's notices from within the script's process: how many tasks of a resumed record
 * are skipped, and why a record cannot be written or resumed.
 */

import { subscribe } from 'node:diagnostics_channel'
import { resumeChannel } from '../../checkpoint/run-file.ts'
import {
  CheckpointError,
  StateError,
  type TuttiError,
  ValueError,
} from '../../foundation/errors.ts'
import type { ResumedRecord, ResumeOptions } from '../../index.ts'
import { listCounts, numberText } from '../../views/readable.ts'
import { exitCodes, isOutputFailure } from '../exit.ts'
import { createOutput, type Output, type OutputForm } from '../output.ts'

/** Published by a session that resumes a record, after its first submission was accepted. */
export interface ResumeMessage {
  readonly record: ResumedRecord
  readonly options: ResumeOptions
}

/** Installs the notices. `form` is the output form of the command. */
export function installNotices(form: string): void {
  const shown: OutputForm = form === 'json' || form === 'quiet' ? form : 'text'
  const output = createOutput(shown, process.stdout, process.stderr)
  reportResume(output)
  process.on('uncaughtExceptionMonitor', (error: unknown) => {
    if (!isRecordError(error) || process.listenerCount('uncaughtException') > 0) return
    output.failure(error)
    process.exit(isOutputFailure(error) ? exitCodes.outputFailed : exitCodes.usage)
  })
}

/** Prints how many tasks are skipped, before the first task starts. */
export function reportResume(output: Output): void {
  subscribe(resumeChannel, (message) => {
    if (output.form === 'text') output.problem(describeResume(message as ResumeMessage))
  })
}

/** Returns a text such as `skipping 3 of 5 recorded tasks; 2 run again: 1 failed, 1 unfinished`. */
export function describeResume({ record, options }: ResumeMessage): string {
  const { done, failed, canceled, unfinished, notKept, unnamed } = record
  const keepsFailed = options.keepFailed === true
  const skipped = done - notKept + (keepsFailed ? failed : 0)
  const all = done + failed + canceled + unfinished
  const reasons = listCounts([
    [keepsFailed ? 0 : failed, 'failed'],
    [canceled, 'canceled'],
    [unfinished, 'unfinished'],
    [notKept, 'done, but without a kept result or a uid of their own'],
  ])
  // A task can be compared with the record only after the program has created it.
  const isForced = options.changed === 'rerun'
  const mayChange = skipped > 0 && (isForced || unnamed > 0)
  const others = isForced ? '' : ' without a uid of its own'
  return [
    `skipping ${mayChange ? 'up to ' : ''}${numberText(skipped)} of ` +
      `${numberText(all)} recorded tasks`,
    ...(reasons.length === 0
      ? []
      : [`${numberText(all - skipped)} run again: ${reasons.join(', ')}`]),
    ...(mayChange ? [`any skipped task${others} runs again if it has changed`] : []),
  ].join('; ')
}

/**
 * Whether the error is about the record. For such errors, the stack of the script would not help.
 */
function isRecordError(error: unknown): error is TuttiError {
  if (CheckpointError.isInstance(error)) return true
  if (StateError.isInstance(error)) return error.code === 'ResumeRefusedError'
  return ValueError.isInstance(error) && error.code === 'DefinitionChangedError'
}
