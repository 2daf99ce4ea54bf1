/** `tutti failures`: what went wrong, by cause, with one full example of each. */

import { commandText, countText, firstLine, ownFrames } from '../../views/readable.ts'
import { nameAndProgram, spanText } from '../../views/readable.ts'
import { counts } from '../../views/panels/counts.ts'
import {
  endText,
  type FailureExample,
  type FailureGroup,
  failures,
} from '../../views/panels/failures.ts'
import type { Output } from '../output.ts'
import { type OpenRecord, recordFields, recordNotes, recordWord } from './open-record.ts'
import { showRecord } from './open-record.ts'

export interface FailuresCommandOptions {
  readonly limit: number
}

const mostStackLines = 12
const mostOutputLines = 12

export async function listFailures(
  what: string,
  { limit }: FailuresCommandOptions,
  output: Output,
): Promise<number> {
  return await showRecord(what, output, (record) => show(record, limit, output))
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
    failed === 0
      ? 'no task has failed'
      : `${countText(failed, 'task')} failed, ${countText(groups.length + otherGroups, 'cause')}`,
    ...groups.flatMap((group) => groupLines(group, recordWord(record))),
    ...(otherGroups > 0
      ? [`and ${countText(otherGroups, 'other cause')}; --limit shows more`]
      : []),
    ...recordNotes(record),
  ])
}

const groupFields = (group: FailureGroup): object => ({
  count: group.count,
  name: group.name,
  error_type: group.errorType,
  message: group.message,
  first_task: group.firstTask,
  first_time: group.firstTime,
  last_time: group.lastTime,
  example: {
    uid: group.example.task,
    program: group.example.program,
    message: group.example.message,
    stack: group.example.stack,
    hint: group.example.hint === '' ? null : group.example.hint,
    stdout_tail: group.example.stdoutTail,
    stderr_tail: group.example.stderrTail,
    arguments: group.example.arguments,
    node_id: group.example.nodeId,
    worker_id: group.example.workerId,
    exit_code: group.example.exitCode,
    signal: group.example.signal === '' ? null : group.example.signal,
  },
})

function groupLines(group: FailureGroup, record: string): string[] {
  const { count, name, errorType, message, example, firstTime, lastTime } = group
  const when = spanText(firstTime, lastTime)
  const end = endText(example)
  const where = example.workerId || example.nodeId
  const title = `${count} x ${nameAndProgram(name, example.program)}`
  const which = count === 1 ? '' : 'first: '
  return [
    '',
    `${title}: ${errorType} "${firstLine(message, 200)}"`,
    `  ${when}; ${which}${example.task}${where === '' ? '' : ` on ${where}`}${end && `, ${end}`}`,
    ...exampleLines(example, message),
    ...(count > 1 ? [`  of another task: npx tutti explain TASK ${record}`] : []),
  ]
}

/** What helps to find the cause: of a program what it has printed, of a function the stack. */
export function exampleLines(example: FailureExample, message = example.message): string[] {
  const { stack, stdoutTail, stderrTail, hint, isProgram } = example
  const output = (stream: string, text: string): string[] =>
    text.trim() === ''
      ? []
      : [`  the end of its ${stream}:`, ...lastIndented(text, mostOutputLines)]
  const { arguments: args, program } = example
  return [
    ...(args.length === 0 ? [] : [`  command: ${commandText(program, args)}`]),
    ...(hint === '' ? [] : [`  hint: ${firstLine(hint, 500)}`]),
    ...(isProgram ? [] : indented(withoutMessage(ownFrames(stack), message), mostStackLines)),
    ...output('stderr', stderrTail),
    ...output('stdout', stdoutTail),
  ]
}

/** The frames alone: the message was told. */
function withoutMessage(stack: string, message: string): string {
  const at = stack.indexOf(message)
  return at === -1 ? stack : stack.slice(at + message.length)
}

function indented(text: string, most: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(0, most).map((line) => `    ${line.trim()}`)
  return lines.length > most ? [...shown, '    …'] : shown
}

/** Of an output the last lines say what happened. */
function lastIndented(text: string, most: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(-most).map((line) => `    ${line.trimEnd()}`)
  return lines.length > most ? ['    …', ...shown] : shown
}
