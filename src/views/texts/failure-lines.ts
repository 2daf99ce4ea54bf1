/** Formats failures as lines of text, for `tutti failures`, `tutti explain` and the dashboard. */

import {
  errorTypeText,
  exitText,
  type FailureCause,
  type FailureExample,
  type FailureGroup,
} from '../panels/failures.ts'
import { commandText, countText, firstLine, nameAndProgram, numberText } from '../readable.ts'
import { timeRangeText, userFrames } from '../readable.ts'

export const maxTitleLength = 200
const maxScopeLength = 100
const maxMessageLines = 40
const maxStackLines = 12
const maxOutputLines = 12

/** Returns a title for the group, and the details of its example. */
export function failureGroupLines(group: FailureGroup): string[] {
  const { count, name, errorType, message, example, firstTime, lastTime } = group
  const timesText = timeRangeText(firstTime, lastTime)
  const end = exitText(example)
  const scope = example.scope === '' ? '' : ` in scope ${firstLine(example.scope, maxScopeLength)}`
  const place = example.workerId || example.nodeId
  const placeText = `${scope}${place === '' ? '' : ` on ${place}`}`
  const title = `${numberText(count)} x ${nameAndProgram(name, example.program)}`
  const which = count === 1 ? '' : 'first: '
  return [
    `${title}: ${errorTypeText(errorType, example)} "${firstLine(message, maxTitleLength)}"`,
    `  ${timesText}; ${which}${example.task}${placeText}${end && `, ${end}`}`,
    ...exampleLines(example, message),
  ]
}

/** Describes a task's failure. If `own` is `null`, only what its group has in common is known. */
export function taskFailureLines(
  { errorType, message, count }: FailureGroup,
  own: FailureExample | null,
): string[] {
  const end = own === null ? '' : exitText(own)
  const title = firstLine(own?.message ?? message, maxTitleLength)
  const others = count > 1 ? ` (${countText(count, 'task')} failed this way)` : ''
  return [
    `  ${errorType} "${title}"${end && `, ${end}`}${others}`,
    ...(own === null ? [] : exampleLines(own)),
  ]
}

/**
 * Lists details that help to find the cause, such as the output of a program or a stack. Includes
 * the message unless `title`, which was already printed, contains it.
 */
function exampleLines(example: FailureExample, title = example.message): string[] {
  const { stack, stdoutTail, stderrTail, hint, isFromTutti, message } = example
  const isInTitle = message.endsWith(title) && firstLine(message, maxTitleLength) === message
  const output = (stream: string, text: string): string[] =>
    text.trim() === '' ? [] : [`  the end of its ${stream}:`, ...indentLast(text, maxOutputLines)]
  const { arguments: args, program } = example
  return [
    ...(args.length === 0 ? [] : [`  command: ${commandText(program, args)}`]),
    ...(hint === '' ? [] : [`  hint: ${firstLine(hint, 500)}`]),
    ...(isInTitle ? [] : indentFirst(message, maxMessageLines)),
    ...(isFromTutti ? [] : indentFirst(stripMessage(userFrames(stack), message), maxStackLines)),
    ...example.causes.flatMap(causeLines),
    ...output('stderr', stderrTail),
    ...output('stdout', stdoutTail),
  ]
}

function causeLines({ path, errorType, message, stack }: FailureCause): string[] {
  const title = firstLine(message, maxTitleLength)
  return [
    `  ${path}: ${errorType} "${title}"`,
    ...(title === message ? [] : indentFirst(message, maxMessageLines)),
    ...indentFirst(stripMessage(userFrames(stack), message), maxStackLines),
  ]
}

/** Returns the stack frames after the message, which was already printed. */
function stripMessage(stack: string, message: string): string {
  const at = stack.indexOf(message)
  return at === -1 ? stack : stack.slice(at + message.length)
}

function indentFirst(text: string, max: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(0, max).map((line) => `    ${line.trim()}`)
  return lines.length > max ? [...shown, '    …'] : shown
}

/** Keeps the last lines of a program's output, which usually explain the failure. */
function indentLast(text: string, max: number): string[] {
  const lines = text.split('\n').filter((line) => line.trim() !== '')
  const shown = lines.slice(-max).map((line) => `    ${line.trimEnd()}`)
  return lines.length > max ? ['    …', ...shown] : shown
}
