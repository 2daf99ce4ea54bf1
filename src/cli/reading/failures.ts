/** `tutti failures`: failures grouped by cause, each group with one complete example. */

import { commandText, countText, firstLine, numberText, ownFrames } from '../../views/readable.ts'
import { nameAndProgram, spanText } from '../../views/readable.ts'
import { counts } from '../../views/panels/counts.ts'
import {
  endText,
  type FailureCause,
  type FailureExample,
  type FailureGroup,
  failures,
  type FailureSummary,
  neverRanText,
  summarizeFailures,
  typeText,
} from '../../views/panels/failures.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, recordFields, recordNotes, recordWord } from './open-record.ts'
import { showRecord } from './open-record.ts'

export interface FailuresCommandOptions {
  readonly limit: number
  readonly scope?: string
}

export const maxTitleLength = 200
const maxScopeLength = 100
const maxMessageLines = 40
const maxStackLines = 12
const maxOutputLines = 12

export async function listFailures(
  what: string,
  { limit, scope }: FailuresCommandOptions,
  output: Output,
): Promise<number> {
  return await showRecord(what, output, (record) => show(record, limit, output), scope)
}

function show(record: OpenRecord, limit: number, output: Output): void {
  const { failed } = counts.show(record.pass.counts)
  const { groups, otherGroups, ungrouped } = failures.show(record.pass.states.failures, { limit })
  const value = {
    ...recordFields(record),
    failed,
    groups: groups.map(groupFields),
    other_groups: otherGroups,
    ungrouped,
  }
  output.result(value, [
    headLine(failed, summarizeFailures(record.pass.states.failures, Infinity)),
    ...groups.flatMap((group) => groupLines(group, recordWord(record))),
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
    : `${summary}; ${numberText(neverRan)} of them ${neverRanText(neverRan)}`
}

const groupFields = (group: FailureGroup): object => ({
  count: group.count,
  name: group.name,
  error_type: group.errorType,
  error_code: group.example.code === '' ? null : group.example.code,
  message: group.message,
  first_task: group.firstTask,
  first_time: group.firstTime,
  last_time: group.lastTime,
  example: {
    uid: group.example.task,
    scope: group.example.scope === '' ? null : group.example.scope,
    program: group.example.program,
    message: group.example.message,
    stack: group.example.stack,
    hint: group.example.hint === '' ? null : group.example.hint,
    causes: group.example.causes.map(causeFields),
    stdout_tail: group.example.stdoutTail,
    stderr_tail: group.example.stderrTail,
    arguments: group.example.arguments,
    node_id: group.example.nodeId,
    worker_id: group.example.workerId,
    exit_code: group.example.exitCode,
    signal: group.example.signal === '' ? null : group.example.signal,
  },
})

export const causeFields = ({ path, errorType, message, stack }: FailureCause): object => ({
  path,
  error_type: errorType,
  message,
  stack,
})

function groupLines(group: FailureGroup, record: string): string[] {
  const { count, name, errorType, message, example, firstTime, lastTime } = group
  const when = spanText(firstTime, lastTime)
  const end = endText(example)
  const scope = example.scope === '' ? '' : ` in scope ${firstLine(example.scope, maxScopeLength)}`
  const place = example.workerId || example.nodeId
  const where = `${scope}${place === '' ? '' : ` on ${place}`}`
  const title = `${numberText(count)} x ${nameAndProgram(name, example.program)}`
  const which = count === 1 ? '' : 'first: '
  return [
    '',
    `${title}: ${typeText(errorType, example)} "${firstLine(message, maxTitleLength)}"`,
    `  ${when}; ${which}${example.task}${where}${end && `, ${end}`}`,
    ...exampleLines(example, message),
    ...(count > 1 ? [`  of another task: npx tutti explain TASK ${record}`] : []),
  ]
}

/**
 * Details that help to find the cause: the output of a program, or the stack of a function.
 * Includes the message unless the first line of `title`, which is shown, already contains it.
 */
export function exampleLines(example: FailureExample, title = example.message): string[] {
  const { stack, stdoutTail, stderrTail, hint, isNoticed, message } = example
  const isInTitle = message.endsWith(title) && firstLine(message, maxTitleLength) === message
  const output = (stream: string, text: string): string[] =>
    text.trim() === '' ? [] : [`  the end of its ${stream}:`, ...lastIndented(text, maxOutputLines)]
  const { arguments: args, program } = example
  return [
    ...(args.length === 0 ? [] : [`  command: ${commandText(program, args)}`]),
    ...(hint === '' ? [] : [`  hint: ${firstLine(hint, 500)}`]),
    ...(isInTitle ? [] : indented(message, maxMessageLines)),
    ...(isNoticed ? [] : indented(withoutMessage(ownFrames(stack), message), maxStackLines)),
    ...example.causes.flatMap(causeLines),
    ...output('stderr', stderrTail),
    ...output('stdout', stdoutTail),
  ]
}

/** The lines for an error nested in the thrown error. */
function causeLines({ path, errorType, message, stack }: FailureCause): string[] {
  const title = firstLine(message, maxTitleLength)
  return [
    `  ${path}: ${errorType} "${title}"`,
    ...(title === message ? [] : indented(message, maxMessageLines)),
    ...indented(withoutMessage(ownFrames(stack), message), maxStackLines),
  ]
}

/** Returns only the stack frames, because the message was already printed. */
function withoutMessage(stack: string, message: string): string {
  const at = stack.indexOf(message)
  return at === -1 ? stack : stack.slice(at + message.length)
}

function indented(text: string, max: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(0, max).map((line) => `    ${line.trim()}`)
  return lines.length > max ? [...shown, '    …'] : shown
}

/** The last lines of a program's output, which usually explain the failure. */
function lastIndented(text: string, max: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(-max).map((line) => `    ${line.trimEnd()}`)
  return lines.length > max ? ['    …', ...shown] : shown
}
