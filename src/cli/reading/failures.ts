/** `tutti failures`: shows failures grouped by cause, each with an example. */

import { countText, numberText } from '../../views/readable.ts'
import { counts } from '../../views/panels/counts.ts'
import {
  type FailureExample,
  type FailureGroup,
  failures,
  type FailureSummary,
  describeNeverRan,
  summarizeFailures,
} from '../../views/panels/failures.ts'
import { failureGroupLines } from '../../views/texts/failure-lines.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, recordFields, recordNotes } from './open-record.ts'
import { recordArgument, showRecord } from './open-record.ts'

export interface FailuresCommandOptions {
  readonly limit: number
  readonly scope?: string
}

export async function listFailures(
  source: string,
  { limit, scope }: FailuresCommandOptions,
  output: Output,
): Promise<number> {
  return await showRecord(source, output, (record) => show(record, limit, output), scope)
}

function show(record: OpenRecord, limit: number, output: Output): void {
  const { failed } = counts.show(record.pass.counts)
  const { groups, otherGroups, ungrouped } = failures.show(record.pass.states.failures, { limit })
  const value = {
    ...recordFields(record),
    failed,
    groups: groups.map(failureGroupFields),
    other_groups: otherGroups,
    ungrouped,
  }
  output.result(value, [
    headLine(failed, summarizeFailures(record.pass.states.failures, Infinity)),
    ...groups.flatMap((group) => [
      '',
      ...failureGroupLines(group),
      ...(group.count > 1
        ? [`  about another task: npx tutti explain TASK ${recordArgument(record)}`]
        : []),
    ]),
    ...(otherGroups > 0
      ? [`and ${countText(otherGroups, 'other cause')}; --limit shows more`]
      : []),
    ...recordNotes(record),
  ])
}

function headLine(failed: number, { causes, neverRan }: FailureSummary): string {
  if (failed === 0) return 'no task has failed'
  const summary = `${countText(failed, 'task')} failed, ${countText(causes.length, 'cause')}`
  return neverRan === 0
    ? summary
    : `${summary}; ${numberText(neverRan)} of them ${describeNeverRan(neverRan)}`
}

const failureGroupFields = (group: FailureGroup): object => ({
  count: group.count,
  name: group.name,
  error_type: group.errorType,
  error_code: group.example.code || null,
  message: group.message,
  first_task: group.firstTask,
  first_time: group.firstTime,
  last_time: group.lastTime,
  example: {
    uid: group.example.task,
    scope: group.example.scope || null,
    ...exampleFields(group.example),
    node_id: group.example.nodeId,
    worker_id: group.example.workerId,
  },
})

/** The fields of a failure that `tutti explain` prints as well. */
export const exampleFields = (example: FailureExample): object => ({
  program: example.program,
  message: example.message,
  stack: example.stack,
  hint: example.hint || null,
  causes: example.causes.map(({ path, errorType, message, stack }) => ({
    path,
    error_type: errorType,
    message,
    stack,
  })),
  stdout_tail: example.stdoutTail,
  stderr_tail: example.stderrTail,
  arguments: example.arguments,
  exit_code: example.exitCode,
  signal: example.signal || null,
})
