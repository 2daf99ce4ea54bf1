/**
 * Failures: failed tasks grouped by name and cause. Numbers, ids and paths in a message are
 * ignored, so that "seed 17" and "seed 18" have the same cause. Uses 12 bytes per task if any task
 * has failed.
 */

import { createColumn, setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { numberOf, type Panel, type PassedStates, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import { countText, escapeControls, firstLine, nameAndProgram, numberText } from '../readable.ts'
import type { NamesState } from './names.ts'

export interface GroupState {
  readonly errorType: string
  readonly pattern: string
  readonly name: string
  cause: string
  /** Whether the tasks never ran because a dependency had failed. */
  readonly isConsequence: boolean
  example: FailureExample
  /** Whether the task of the example runs again. If so, the next failure replaces the example. */
  isExampleOutdated: boolean
  isUniform: boolean
  count: number
}

/** The details of the first failure of a group. */
export interface FailureExample {
  readonly task: string
  /** The id of the task's `flow.scope`; empty if there is none. */
  readonly scope: string
  /** The program, function or model that ran. The name of a workflow step may differ from it. */
  readonly program: string
  readonly message: string
  /** The code of a tutti error, such as `engine_lost`; empty if it only repeats the type. */
  readonly code: string
  readonly stack: string
  readonly hint: string
  readonly arguments: readonly string[]
  readonly stdoutTail: string
  readonly stderrTail: string
  readonly signal: string
  readonly nodeId: string
  readonly workerId: string
  readonly exitCode: number | null
  /** Nested errors: the `cause`, and the `errors` of an AggregateError. */
  readonly causes: readonly FailureCause[]
  /** Whether tutti created the error. If so, its stack is of no use to the user. */
  readonly isFromTutti: boolean
}

export interface FailureCause {
  /** The property path, such as `cause`, `errors[0]` or `errors[0].cause`. */
  readonly path: string
  readonly errorType: string
  readonly message: string
  readonly stack: string
}

export interface FailureGroup {
  readonly errorType: string
  /** The message, in which parts that differ are replaced with `<n>`, `<id>` and `<path>`. */
  readonly message: string
  readonly name: string
  readonly firstTask: string
  readonly count: number
  readonly firstTime: number
  readonly lastTime: number
  readonly example: FailureExample
  readonly isConsequence: boolean
  readonly number: number
}

const createFailures = () => ({
  groups: [] as GroupState[],
  /** Group numbers by name, error type, pattern, exit code, signal and group of the root task. */
  byCause: new Map<string, number>(),
  /** The number of failures that have no group, because there were too many groups. */
  ungrouped: 0,
  /** The group number of each failed task, counted from 1. */
  groupOfTask: createColumn('u32'),
  timeOfTask: createColumn('f64'),
  /** The number of rows in `groupOfTask` and `timeOfTask`. */
  tasks: 0,
})

export type FailuresState = ReturnType<typeof createFailures>

export interface FailuresQuery {
  /** The maximum number of groups. Causes come before consequences, larger groups first. */
  readonly limit: number
}

export interface FailuresView {
  readonly groups: readonly FailureGroup[]
  readonly otherGroups: number
  readonly ungrouped: number
}

const maxGroups = 1000
const noGroup = maxGroups + 1
/** Longer texts are truncated. Failures that differ only after this length share a group. */
const maxTextLength = 2000
const maxArguments = 2000
const maxCauses = 10

export const failures: Panel<FailuresState, FailuresQuery, FailuresView> = {
  create: createFailures,

  take(state, event, step, passed) {
    if ((step.earlier & stages.failed) !== 0) removeFailure(state, event, step)
    if (step.stage !== stages.failed || step.after === step.before) return
    const [root] = step.dependencies
    const rootGroup = root === undefined ? 0 : valueAt(state.groupOfTask, root)
    const number = addFailure(state, event, { name: readName(event, step, passed), rootGroup })
    setValue(state.groupOfTask, step.task, number)
    setValue(state.timeOfTask, step.task, event.event_time)
    state.tasks = Math.max(state.tasks, step.task + 1)
  },

  show(state, { limit }) {
    const { groups, ungrouped } = state
    const times = timesByGroup(state)
    const found = groups.flatMap((group, at) =>
      group.count === 0 ? [] : toView(group, at + 1, times.get(at + 1)),
    )
    const shown = found
      .toSorted((a, b) => rankOf(a) - rankOf(b) || b.count - a.count)
      .slice(0, limit)
    return { groups: shown, otherGroups: found.length - shown.length, ungrouped }
  },
}

const rankOf = ({ isConsequence }: FailureGroup): number => (isConsequence ? 1 : 0)

export interface FailureSummary {
  /** The groups of tasks that failed themselves. Excludes tasks whose dependency had failed. */
  readonly causes: readonly FailureGroup[]
  readonly otherCauses: number
  readonly neverRan: number
}

export function summarizeFailures(state: FailuresState, limit: number): FailureSummary {
  const { groups } = failures.show(state, { limit: Infinity })
  const causes = groups.filter(({ isConsequence }) => !isConsequence)
  const shown = causes.slice(0, limit)
  const neverRan = groups.slice(causes.length).reduce((sum, { count }) => sum + count, 0)
  return { causes: shown, otherCauses: causes.length - shown.length, neverRan }
}

/**
 * Returns one line for each of the `limit` most frequent causes, one line with the number of other
 * causes, and one line for tasks that never ran.
 */
export function causeLines(state: FailuresState, limit: number): string[] {
  const { causes, otherCauses, neverRan } = summarizeFailures(state, limit)
  const lines = causes.map(
    ({ count, name, errorType, message, firstTask, example: { program } }) =>
      `${numberText(count)} x ${escapeControls(nameAndProgram(name, program))}: ` +
      `${errorType} "${firstLine(message)}" (first: ${firstTask})`,
  )
  if (otherCauses > 0) lines.push(`and ${countText(otherCauses, 'other cause')}`)
  if (neverRan > 0) lines.push(`${countText(neverRan, 'task')} ${describeNeverRan(neverRan)}`)
  return lines
}

/** Returns the end of a sentence that says that this number of tasks never ran. */
export const describeNeverRan = (count: number): string =>
  `never ran, because what ${count === 1 ? 'it needs' : 'they need'} has failed`

function removeFailure(state: FailuresState, event: ViewEvent, { task }: TaskStep): void {
  const number = valueAt(state.groupOfTask, task)
  const group = state.groups[number - 1]
  if (group !== undefined) removeFromGroup(group, event.task_id)
  else if (number === noGroup) state.ungrouped--
  setValue(state.groupOfTask, task, 0)
}

function removeFromGroup(group: GroupState, uid: string | null): void {
  group.count--
  group.isExampleOutdated ||= group.example.task === uid
  if (group.count > 0) return
  group.isUniform = true
  group.isExampleOutdated = true
}

type GroupTimes = Pick<FailureGroup, 'firstTime' | 'lastTime'>

const noTimes: GroupTimes = { firstTime: Infinity, lastTime: -Infinity }

function timesByGroup({ groupOfTask, timeOfTask, tasks }: FailuresState): Map<number, GroupTimes> {
  const times = new Map<number, GroupTimes>()
  for (let task = 0; task < tasks; task++) {
    const group = valueAt(groupOfTask, task)
    if (group === 0) continue
    const time = valueAt(timeOfTask, task)
    const { firstTime, lastTime } = times.get(group) ?? noTimes
    times.set(group, { firstTime: Math.min(firstTime, time), lastTime: Math.max(lastTime, time) })
  }
  return times
}

/**
 * Returns the task's name from the panel `names`, if the pass has it, because workflow steps have
 * their own names. Otherwise returns the executable.
 */
function readName(event: ViewEvent, { task }: TaskStep, passed: PassedStates = {}): string {
  const known = passed['names'] as NamesState | undefined
  const name = known === undefined ? '' : textAt(known.names, valueAt(known.nameOfTask, task))
  return truncate(name) || truncate(event.attributes['executable'])
}

interface FailureOrigin {
  readonly name: string
  /** The group of the task that is the root cause; 0 if there is none. */
  readonly rootGroup: number
}

function addFailure(
  state: FailuresState,
  event: ViewEvent,
  { name, rootGroup }: FailureOrigin,
): number {
  // The specification defines the field, but some writers only set the attribute.
  const errorType = truncate(event.error_type) || truncate(event.attributes['error_type'])
  const message = truncate(event.attributes['error_message'])
  const example = toExample(event, message)
  const isConsequence = isDependencyFailure(event)
  const cause = findCause(message, textOf(event.attributes['tutti.root_task']))
  const { exitCode, signal } = example
  const pattern = keepExitCode(toPattern(cause), exitCode)
  // An id that consists only of digits looks like a number, so both count as the same.
  const plain = pattern.replaceAll('<id>', '<n>')
  const key = JSON.stringify([name, errorType, plain, exitCode, signal, rootGroup])
  const known = state.byCause.get(key)
  const group = known === undefined ? undefined : state.groups[known - 1]
  if (known !== undefined && group !== undefined) {
    if (group.isExampleOutdated) Object.assign(group, { example, cause })
    group.isExampleOutdated = false
    group.count++
    group.isUniform &&= group.cause === cause
    return known
  }
  if (state.groups.length >= maxGroups) {
    state.ungrouped++
    return noGroup
  }
  const flags = { isConsequence, isUniform: true, isExampleOutdated: false }
  state.groups.push({ errorType, pattern, name, cause, example, count: 1, ...flags })
  state.byCause.set(key, state.groups.length)
  return state.groups.length
}

/** The error type is checked too, because older records do not name the root task. */
const isDependencyFailure = (event: ViewEvent): boolean =>
  textOf(event.attributes['tutti.root_task']) !== '' ||
  (event.error_type ?? event.attributes['error_type']) === 'DependencyFailedError'

/**
 * Returns the part of the message that describes the cause. For a task that never ran, omits the
 * uid and the path of the task itself.
 */
function findCause(message: string, root: string): string {
  const at = root === '' ? -1 : message.indexOf(`${root} failed: `)
  return at === -1 ? message : message.slice(at)
}

/** Keeps the exit code in the pattern, because different exit codes are different causes. */
const keepExitCode = (pattern: string, exitCode: number | null): string =>
  exitCode === null ? pattern : pattern.replace('code <n>', `code ${exitCode}`)

/** Returns the details of the failure that this event reports. */
export const toFailureExample = (event: ViewEvent): FailureExample =>
  toExample(event, truncate(event.attributes['error_message']))

const toExample = (event: ViewEvent, message: string): FailureExample => ({
  task: event.task_id ?? '',
  scope: truncate(event.attributes['workflow_id']),
  program: truncate(event.attributes['executable']),
  message,
  code: truncate(event.attributes['tutti.error_code']),
  hint: truncate(event.attributes['error_hint']),
  stack: truncate(event.attributes['error_stack']),
  causes: readCauses(event),
  arguments: readArguments(event),
  stdoutTail: lastPart(event.attributes['stdout_tail']),
  stderrTail: lastPart(event.attributes['stderr_tail']),
  signal: truncate(event.attributes['signal']),
  nodeId: event.node_id ?? '',
  workerId: truncate(event.attributes['worker_id']),
  exitCode: numberOf(event.attributes['exit_code']),
  isFromTutti: event.attributes['task_type'] === 'compute' || isDependencyFailure(event),
})

/** Returns the type of the error, followed by its code in parentheses if it has one. */
export const errorTypeText = (errorType: string, { code }: FailureExample): string =>
  code === '' ? errorType : `${errorType} (${code})`

/** Returns the exit code or the signal of a program, or an empty text for other tasks. */
export function exitText({ exitCode, signal }: FailureExample): string {
  if (signal !== '') return `ended by ${signal}`
  return exitCode === null ? '' : `exit code ${exitCode}`
}

function readCauses({ attributes }: ViewEvent): FailureCause[] {
  const given = attributes['tutti.error_causes']
  if (!Array.isArray(given)) return []
  return given.slice(0, maxCauses).flatMap((one: unknown) => {
    if (typeof one !== 'object' || one === null) return []
    const inner = one as Record<string, unknown>
    const [path, errorType] = [truncate(inner['path']), truncate(inner['error_type'])]
    const message = truncate(inner['error_message'])
    return [{ path, errorType, message, stack: truncate(inner['error_stack']) }]
  })
}

function readArguments({ attributes }: ViewEvent): string[] {
  const given = attributes['tutti.arguments']
  return Array.isArray(given) ? given.slice(0, maxArguments).map(truncate) : []
}

function toView(group: GroupState, number: number, times: GroupTimes = noTimes): FailureGroup {
  const { errorType, name, example, isConsequence, count } = group
  const message = group.isUniform ? group.cause : group.pattern
  const fields = { errorType, message, name, firstTask: example.task, isConsequence, example }
  return { ...fields, count, number, ...times }
}

/** Returns the last part of an output, which usually contains the error message. */
const lastPart = (value: unknown): string => textOf(value).slice(-maxTextLength)

const truncate = (value: unknown): string => textOf(value).slice(0, maxTextLength)

/** Matches a quoted path, which may contain spaces. */
const quotedPath = /(["'`])(?:[A-Za-z]:|[.~]{0,2})[/\\][^"'`\n]*\1/g
const path = /(?<![\w.~/\\-])(?:[A-Za-z]:|\.{0,2}|~)(?:[/\\][\w.@+~-]+)+[/\\]?/g
/** Matches a path without a leading slash if its last part looks like a file name. */
const relativePath =
  /(?<![\w.~/\\-])[\w@+~-][\w.@+~-]*(?:[/\\][\w.@+~-]+)*[/\\][\w@+~-]+\.[A-Za-z]\w*/g
const uuid = /\b[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}\b/gi
const sessionId = /\bs-[\da-f]{8}\b/g
const word = /[A-Za-z\d]+/g
const hexWord = /^(?:0x[\da-f]+|[\da-f]{4,})$/i
/** Ids of letters only. They must be long, so that words such as `facade` do not match. */
const hexLetters = /^[a-f]{8,}$/i

/** Replaces the parts that vary between failures with the same cause. Takes linear time. */
function toPattern(message: string): string {
  return message
    .replaceAll(quotedPath, '$1<path>$1')
    .replaceAll(relativePath, '<path>')
    .replaceAll(path, '<path>')
    .replaceAll(uuid, '<id>')
    .replaceAll(sessionId, 's-<id>')
    .replaceAll(word, (found) => {
      if (!/\d/.test(found)) return hexLetters.test(found) ? '<id>' : found
      const isId = hexWord.test(found) && !/^\d+$/.test(found)
      return isId ? '<id>' : found.replaceAll(/\d+/g, '<n>')
    })
    .replaceAll(/<n>(?:,<n>)+/g, '<n>')
    .replaceAll(/<n>\.<n>/g, '<n>')
    .replaceAll(/(?<![\w>])\.<n>/g, '<n>')
    .replaceAll(/<n>e[+-]?<n>/g, '<n>')
    .replaceAll(/(?<![\w>)\]-])-(?=<n>)/g, '')
}
