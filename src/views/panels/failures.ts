/**
 * Failures: failed tasks grouped by name and cause. Numbers, ids and paths in a message are
 * ignored, so that "seed 17" and "seed 18" have the same cause. 12 bytes per task if any has
 * failed.
 */

import { type Column, createColumn, setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { numberOf, type Panel, type PassedStates, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import { countText, escapeControls, firstLine, nameAndProgram, numberText } from '../readable.ts'
import type { NamesState } from './names.ts'

interface GroupState {
  readonly errorType: string
  readonly pattern: string
  readonly name: string
  /** The cause in the message of the example; see `causeIn`. */
  cause: string
  /** Whether the tasks never ran because a dependency had failed. */
  readonly isConsequence: boolean
  example: FailureExample
  /** Whether the example's task runs again; the next failure then replaces the example. */
  isExampleOver: boolean
  /** Whether all messages are equal. */
  isUniform: boolean
  count: number
  firstTime: number
  lastTime: number
  /** Whether `firstTime` or `lastTime` belongs to a task that runs again. */
  isStale: boolean
}

/** The first failure of a group, in full. */
export interface FailureExample {
  readonly task: string
  /** The id of the `flow.scope`; empty if there is none. */
  readonly scope: string
  /** The program, function or model that ran. A workflow step may have a different name. */
  readonly program: string
  readonly message: string
  /** The code of a tutti error, such as `engine_lost`; empty if redundant with the type. */
  readonly code: string
  /** Empty if unknown. */
  readonly stack: string
  /** A suggestion for the user. */
  readonly hint: string
  /** The arguments, for programs only. */
  readonly arguments: readonly string[]
  readonly stdoutTail: string
  readonly stderrTail: string
  readonly signal: string
  readonly nodeId: string
  readonly workerId: string
  readonly exitCode: number | null
  /** Nested errors: the `cause`, and the `errors` of an AggregateError. */
  readonly causes: readonly FailureCause[]
  /** Whether tutti created the error, so that its stack is of no use to the user. */
  readonly isNoticed: boolean
}

/** An error nested in another error. */
export interface FailureCause {
  /** The property path, such as `cause`, `errors[0]` or `errors[0].cause`. */
  readonly path: string
  readonly errorType: string
  readonly message: string
  /** Empty if unknown. */
  readonly stack: string
}

export interface FailureGroup {
  readonly errorType: string
  /** The message, with `<n>`, `<id>` and `<path>` instead of the parts that differ. */
  readonly message: string
  /** The name of the tasks, as in the panel `names`. */
  readonly name: string
  /** The first task that failed for this cause. */
  readonly firstTask: string
  readonly count: number
  /** Wall-clock seconds. */
  readonly firstTime: number
  readonly lastTime: number
  readonly example: FailureExample
  /** Whether the tasks never ran because a dependency had failed. */
  readonly isConsequence: boolean
  /** The value of `groupOfTask` for the group's tasks. */
  readonly number: number
}

export interface FailuresState {
  readonly groups: GroupState[]
  /** Group numbers by name, error type, pattern, exit code, signal and group of the root task. */
  readonly byCause: Map<string, number>
  /** The number of failures without a group, because there were too many groups. */
  ungrouped: number
  /** The group number of each failed task, from 1. */
  readonly groupOfTask: Column
  /** When the task failed, in wall-clock seconds. */
  readonly timeOfTask: Column
  /** The number of rows in `groupOfTask` and `timeOfTask`. */
  tasks: number
}

export interface FailuresQuery {
  /** The maximum number of groups: causes before consequences, largest first. */
  readonly limit: number
}

export interface FailuresView {
  readonly groups: readonly FailureGroup[]
  /** The number of groups that are not shown. */
  readonly otherGroups: number
  readonly ungrouped: number
}

const maxGroups = 1000
const noGroup = maxGroups + 1
/** Longer text is truncated; failures that differ only after this length share a group. */
const maxTextLength = 2000
const maxArguments = 2000
const maxCauses = 10

export const failures: Panel<FailuresState, FailuresQuery, FailuresView> = {
  create: () => ({
    groups: [],
    byCause: new Map(),
    ungrouped: 0,
    groupOfTask: createColumn('u32'),
    timeOfTask: createColumn('f64'),
    tasks: 0,
  }),

  take(state, event, step, passed) {
    if ((step.earlier & stages.failed) !== 0) forget(state, event, step)
    if (step.stage !== stages.failed || step.after === step.before) return
    const [root] = step.dependencies
    const rootGroup = root === undefined ? 0 : valueAt(state.groupOfTask, root)
    const number = addFailure(state, event, { name: nameOf(event, step, passed), rootGroup })
    setValue(state.groupOfTask, step.task, number)
    setValue(state.timeOfTask, step.task, event.event_time)
    state.tasks = Math.max(state.tasks, step.task + 1)
  },

  show(state, { limit }) {
    const { groups, ungrouped } = state
    const times = groups.some(({ isStale }) => isStale) ? timesByGroup(state) : null
    const found = groups.flatMap((group, at) => {
      if (group.count === 0) return []
      const exact = (group.isStale ? times?.get(at + 1) : null) ?? {}
      return [toView({ ...group, ...exact }, at + 1)]
    })
    const shown = found
      .toSorted((a, b) => rankOf(a) - rankOf(b) || b.count - a.count)
      .slice(0, limit)
    return { groups: shown, otherGroups: found.length - shown.length, ungrouped }
  },
}

const rankOf = ({ isConsequence }: FailureGroup): number => (isConsequence ? 1 : 0)

export interface FailureSummary {
  /** Without tasks that never ran because a dependency failed. */
  readonly causes: readonly FailureGroup[]
  readonly otherCauses: number
  /** The number of tasks that never ran. */
  readonly neverRan: number
}

export function summarizeFailures(state: FailuresState, limit: number): FailureSummary {
  const { groups } = failures.show(state, { limit: Infinity })
  const causes = groups.filter(({ isConsequence }) => !isConsequence)
  const shown = causes.slice(0, limit)
  const neverRan = groups.slice(causes.length).reduce((sum, { count }) => sum + count, 0)
  return { causes: shown, otherCauses: causes.length - shown.length, neverRan }
}

/** Returns one line for each of the first causes, and one for tasks that never ran. */
export function causeLines(state: FailuresState, limit: number): string[] {
  const { causes, otherCauses, neverRan } = summarizeFailures(state, limit)
  const lines = causes.map(
    ({ count, name, errorType, message, firstTask, example: { program } }) =>
      `${numberText(count)} x ${escapeControls(nameAndProgram(name, program))}: ` +
      `${errorType} "${firstLine(message)}" (first: ${firstTask})`,
  )
  if (otherCauses > 0) lines.push(`and ${countText(otherCauses, 'other cause')}`)
  if (neverRan > 0) lines.push(`${countText(neverRan, 'task')} ${neverRanText(neverRan)}`)
  return lines
}

/** The predicate of a sentence about this number of tasks. */
export const neverRanText = (count: number): string =>
  `never ran, because what ${count === 1 ? 'it needs' : 'they need'} has failed`

/** Removes the failure of a task that runs again in a later session. */
function forget(state: FailuresState, event: ViewEvent, { task }: TaskStep): void {
  const number = valueAt(state.groupOfTask, task)
  const group = state.groups[number - 1]
  if (group !== undefined) forgetIn(group, event.task_id, valueAt(state.timeOfTask, task))
  else if (number === noGroup) state.ungrouped--
  setValue(state.groupOfTask, task, 0)
}

function forgetIn(group: GroupState, uid: string | null, time: number): void {
  group.count--
  group.isExampleOver ||= group.example.task === uid
  group.isStale ||= time === group.firstTime || time === group.lastTime
  if (group.count > 0) return
  const none = { firstTime: Infinity, lastTime: -Infinity, isStale: false }
  Object.assign(group, { ...none, isUniform: true, isExampleOver: true })
}

/** The times of the first and last failure of each group, by group number. */
function timesByGroup({ groupOfTask, timeOfTask, tasks }: FailuresState) {
  const times = new Map<number, { firstTime: number; lastTime: number }>()
  for (let task = 0; task < tasks; task++) {
    const group = valueAt(groupOfTask, task)
    if (group === 0) continue
    const time = valueAt(timeOfTask, task)
    const { firstTime, lastTime } = times.get(group) ?? { firstTime: time, lastTime: time }
    times.set(group, {
      firstTime: Math.min(firstTime, time),
      lastTime: Math.max(lastTime, time),
    })
  }
  return times
}

/** The task's name if the pass has names; workflow steps have their own names. */
function nameOf(event: ViewEvent, { task }: TaskStep, passed: PassedStates = {}): string {
  const known = passed['names'] as NamesState | undefined
  const name = known === undefined ? '' : textAt(known.names, valueAt(known.nameOfTask, task))
  return cut(name) || cut(event.attributes['executable'])
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
  // The specification defines the field, but some writers set only the attribute.
  const errorType = cut(event.error_type) || cut(event.attributes['error_type'])
  const message = cut(event.attributes['error_message'])
  const example = toExample(event, message)
  const isConsequence = isDependent(event)
  const cause = causeIn(message, textOf(event.attributes['tutti.root_task']))
  const { exitCode, signal } = example
  const pattern = withCode(toPattern(cause), exitCode)
  // An id may consist of digits only and then looks like a number.
  const plain = pattern.replaceAll('<id>', '<n>')
  const key = JSON.stringify([name, errorType, plain, exitCode, signal, rootGroup])
  const known = state.byCause.get(key)
  const group = known === undefined ? undefined : state.groups[known - 1]
  if (known !== undefined && group !== undefined) {
    if (group.isExampleOver) Object.assign(group, { example, cause })
    group.isExampleOver = false
    group.count++
    group.isUniform &&= group.cause === cause
    group.firstTime = Math.min(group.firstTime, event.event_time)
    group.lastTime = Math.max(group.lastTime, event.event_time)
    return known
  }
  if (state.groups.length >= maxGroups) {
    state.ungrouped++
    return noGroup
  }
  const times = { firstTime: event.event_time, lastTime: event.event_time }
  const flags = { isConsequence, isUniform: true, isExampleOver: false, isStale: false }
  state.groups.push({ errorType, pattern, name, cause, example, count: 1, ...flags, ...times })
  state.byCause.set(key, state.groups.length)
  return state.groups.length
}

/** Also checks the error type, because older records do not name the root task. */
const isDependent = (event: ViewEvent): boolean =>
  textOf(event.attributes['tutti.root_task']) !== '' ||
  (event.error_type ?? event.attributes['error_type']) === 'DependencyFailedError'

/** For a task that never ran, removes its own uid and path from the message. */
function causeIn(message: string, root: string): string {
  const at = root === '' ? -1 : message.indexOf(`${root} failed: `)
  return at === -1 ? message : message.slice(at)
}

/** Keeps the exit code in the pattern, because it distinguishes the causes of a program. */
const withCode = (pattern: string, exitCode: number | null): string =>
  exitCode === null ? pattern : pattern.replace('code <n>', `code ${exitCode}`)

/** The details of the failure that this event reports. */
export const failureOf = (event: ViewEvent): FailureExample =>
  toExample(event, cut(event.attributes['error_message']))

const toExample = (event: ViewEvent, message: string): FailureExample => ({
  task: event.task_id ?? '',
  scope: cut(event.attributes['workflow_id']),
  program: cut(event.attributes['executable']),
  message,
  code: cut(event.attributes['tutti.error_code']),
  hint: cut(event.attributes['error_hint']),
  stack: cut(event.attributes['error_stack']),
  causes: causesOf(event),
  arguments: argumentsOf(event),
  stdoutTail: endOf(event.attributes['stdout_tail']),
  stderrTail: endOf(event.attributes['stderr_tail']),
  signal: cut(event.attributes['signal']),
  nodeId: event.node_id ?? '',
  workerId: cut(event.attributes['worker_id']),
  exitCode: numberOf(event.attributes['exit_code']),
  isNoticed: event.attributes['task_type'] === 'compute' || isDependent(event),
})

/** The type of the error, with its code in parentheses if it has one. */
export const typeText = (errorType: string, { code }: FailureExample): string =>
  code === '' ? errorType : `${errorType} (${code})`

/** The exit code or signal of a program; empty for tasks that are not programs. */
export function endText({ exitCode, signal }: FailureExample): string {
  if (signal !== '') return `ended by ${signal}`
  return exitCode === null ? '' : `exit code ${exitCode}`
}

function causesOf({ attributes }: ViewEvent): FailureCause[] {
  const given = attributes['tutti.error_causes']
  if (!Array.isArray(given)) return []
  return given.slice(0, maxCauses).flatMap((one: unknown) => {
    if (typeof one !== 'object' || one === null) return []
    const inner = one as Record<string, unknown>
    const [path, errorType] = [cut(inner['path']), cut(inner['error_type'])]
    const message = cut(inner['error_message'])
    return [{ path, errorType, message, stack: cut(inner['error_stack']) }]
  })
}

function argumentsOf({ attributes }: ViewEvent): string[] {
  const given = attributes['tutti.arguments']
  return Array.isArray(given) ? given.slice(0, maxArguments).map(cut) : []
}

function toView(group: GroupState, number: number): FailureGroup {
  const { errorType, name, example, isConsequence, count, firstTime, lastTime } = group
  const message = group.isUniform ? group.cause : group.pattern
  const fields = { errorType, message, name, firstTask: example.task, isConsequence, example }
  return { ...fields, count, firstTime, lastTime, number }
}

/** Keeps the last part of the output, which usually contains the error message. */
const endOf = (value: unknown): string => textOf(value).slice(-maxTextLength)

const cut = (value: unknown): string => textOf(value).slice(0, maxTextLength)

/** A quoted path may contain spaces. */
const quotedPath = /(["'`])(?:[A-Za-z]:|[.~]{0,2})[/\\][^"'`\n]*\1/g
const path = /(?<![\w.~/\\-])(?:[A-Za-z]:|\.{0,2}|~)(?:[/\\][\w.@+~-]+)+[/\\]?/g
/** A path without a leading slash, only if its last part looks like a file name. */
const relativePath =
  /(?<![\w.~/\\-])[\w@+~-][\w.@+~-]*(?:[/\\][\w.@+~-]+)*[/\\][\w@+~-]+\.[A-Za-z]\w*/g
const uuid = /\b[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}\b/gi
const sessionId = /\bs-[\da-f]{8}\b/g
const word = /[A-Za-z\d]+/g
const hexWord = /^(?:0x[\da-f]+|[\da-f]{4,})$/i
/** Long enough that words with the letters a to f, such as `facade`, are not mistaken for ids. */
const hexLetters = /^[a-f]{8,}$/i

/** Replaces parts of a message that vary between failures with the same cause, in linear time. */
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
