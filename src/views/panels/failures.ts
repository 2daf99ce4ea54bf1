/**
 * Failures: failed tasks grouped by name and cause. Numbers, ids and paths of a message do not
 * count, so that "seed 17" and "seed 18" are one cause. 12 bytes a task as soon as one has failed.
 */

import { type Column, createColumn, setValue, textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { numberOf, type Panel, type PassedStates, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import type { NamesState } from './names.ts'

interface GroupState {
  readonly errorType: string
  readonly pattern: string
  readonly name: string
  /** What the example says of the cause. */
  told: string
  /** Whether its tasks never ran, because one that they need had failed. */
  readonly isConsequence: boolean
  example: FailureExample
  /** Whether the task of the example runs again: the next failure takes its place. */
  isExampleOver: boolean
  /** Whether all messages were equal. */
  isUniform: boolean
  count: number
  firstTime: number
  lastTime: number
  /** Whether a task that runs again had one of the two times. */
  isStale: boolean
}

/** The first failure of a group, in full. */
export interface FailureExample {
  readonly task: string
  /** What ran: the program, function or model; a step of a workflow may have another name. */
  readonly program: string
  readonly message: string
  /** Empty where unknown. */
  readonly stack: string
  /** What a person can do about it. */
  readonly hint: string
  /** Of programs. */
  readonly arguments: readonly string[]
  readonly stdoutTail: string
  readonly stderrTail: string
  readonly signal: string
  readonly nodeId: string
  readonly workerId: string
  readonly exitCode: number | null
  /** The errors within it: its `cause`, and the `errors` of an AggregateError. */
  readonly causes: readonly FailureCause[]
  /** Whether tutti itself made the error: the stack shows where, which helps nobody. */
  readonly isNoticed: boolean
}

/** An error within another one. */
export interface FailureCause {
  /** The way to it: `cause`, `errors[0]`, `errors[0].cause`. */
  readonly path: string
  readonly errorType: string
  readonly message: string
  /** Empty where unknown. */
  readonly stack: string
}

/** Failures with the same cause. */
export interface FailureGroup {
  readonly errorType: string
  /** As it was, or with `<n>`, `<id>` and `<path>` where the messages differ. */
  readonly message: string
  /** Of the tasks, as `names` has it. */
  readonly name: string
  /** The first task that failed so. */
  readonly firstTask: string
  readonly count: number
  /** Wall-clock seconds. */
  readonly firstTime: number
  readonly lastTime: number
  readonly example: FailureExample
  /** Whether its tasks never ran, because one that they need had failed. */
  readonly isConsequence: boolean
  /** What `groupOfTask` of the state has for the group's tasks. */
  readonly number: number
}

export interface FailuresState {
  readonly groups: GroupState[]
  /** By name, error type, pattern, end of the program, and the group of what failed first. */
  readonly byCause: Map<string, number>
  /** Failures that found no group because there were too many. */
  ungrouped: number
  /** Of each task that failed: the number of its group, from 1. */
  readonly groupOfTask: Column
  /** When it did, in wall-clock seconds. */
  readonly timeOfTask: Column
  /** How many rows these columns have. */
  tasks: number
}

export interface FailuresQuery {
  /** How many groups to show: causes before their consequences, the largest first. */
  readonly limit: number
}

export interface FailuresView {
  readonly groups: readonly FailureGroup[]
  /** Groups that are not shown. */
  readonly otherGroups: number
  readonly ungrouped: number
}

const mostGroups = 1000
const noGroup = mostGroups + 1
/** Longer texts are cut, and failures that differ only beyond it are one group. */
const longestText = 2000
const mostArguments = 2000
const mostCauses = 10

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

/** The task runs again in a later session of the run. */
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

/** The first and last failure of each group, by its number. */
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

/** That of the task, where the pass has names: of a workflow's step it is not what has run. */
function nameOf(event: ViewEvent, { task }: TaskStep, passed: PassedStates = {}): string {
  const known = passed['names'] as NamesState | undefined
  const name = known === undefined ? '' : textAt(known.names, valueAt(known.nameOfTask, task))
  return cut(name) || cut(event.attributes['executable'])
}

interface FailureOrigin {
  readonly name: string
  /** The group of the task whose failure is the reason; 0 for none. */
  readonly rootGroup: number
}

function addFailure(
  state: FailuresState,
  event: ViewEvent,
  { name, rootGroup }: FailureOrigin,
): number {
  // The field is the specification's; the attribute is there for readers of attributes alone.
  const errorType = cut(event.error_type) || cut(event.attributes['error_type'])
  const message = cut(event.attributes['error_message'])
  const example = toExample(event, message)
  const isConsequence = isDependent(event)
  const told = causeIn(message, textOf(event.attributes['tutti.root_task']))
  const { exitCode, signal } = example
  const pattern = withCode(toPattern(told), exitCode)
  // An id may consist of digits alone, as a number does.
  const plain = pattern.replaceAll('<id>', '<n>')
  const key = JSON.stringify([name, errorType, plain, exitCode, signal, rootGroup])
  const known = state.byCause.get(key)
  const group = known === undefined ? undefined : state.groups[known - 1]
  if (known !== undefined && group !== undefined) {
    if (group.isExampleOver) Object.assign(group, { example, told })
    group.isExampleOver = false
    group.count++
    group.isUniform &&= group.told === told
    group.firstTime = Math.min(group.firstTime, event.event_time)
    group.lastTime = Math.max(group.lastTime, event.event_time)
    return known
  }
  if (state.groups.length >= mostGroups) {
    state.ungrouped++
    return noGroup
  }
  const times = { firstTime: event.event_time, lastTime: event.event_time }
  const flags = { isConsequence, isUniform: true, isExampleOver: false, isStale: false }
  state.groups.push({ errorType, pattern, name, told, example, count: 1, ...flags, ...times })
  state.byCause.set(key, state.groups.length)
  return state.groups.length
}

/** Older records do not name the task that failed first. */
const isDependent = (event: ViewEvent): boolean =>
  textOf(event.attributes['tutti.root_task']) !== '' ||
  (event.error_type ?? event.attributes['error_type']) === 'DependencyFailedError'

/** Of a task that never ran: without its own uid and the way to it, which differ for each. */
function causeIn(message: string, root: string): string {
  const at = root === '' ? -1 : message.indexOf(`${root} failed: `)
  return at === -1 ? message : message.slice(at)
}

/** The exit code is what tells the causes of a program apart. */
const withCode = (pattern: string, exitCode: number | null): string =>
  exitCode === null ? pattern : pattern.replace('code <n>', `code ${exitCode}`)

/** What the event of a failed task says of it. */
export const failureOf = (event: ViewEvent): FailureExample =>
  toExample(event, cut(event.attributes['error_message']))

const toExample = (event: ViewEvent, message: string): FailureExample => ({
  task: event.task_id ?? '',
  program: cut(event.attributes['executable']),
  message,
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

/** How a program ended; empty for what is none. */
export function endText({ exitCode, signal }: FailureExample): string {
  if (signal !== '') return `ended by ${signal}`
  return exitCode === null ? '' : `exit code ${exitCode}`
}

function causesOf({ attributes }: ViewEvent): FailureCause[] {
  const given = attributes['tutti.error_causes']
  if (!Array.isArray(given)) return []
  return given.slice(0, mostCauses).flatMap((one: unknown) => {
    if (typeof one !== 'object' || one === null) return []
    const told = one as Record<string, unknown>
    const [path, errorType] = [cut(told['path']), cut(told['error_type'])]
    const message = cut(told['error_message'])
    return [{ path, errorType, message, stack: cut(told['error_stack']) }]
  })
}

function argumentsOf({ attributes }: ViewEvent): string[] {
  const given = attributes['tutti.arguments']
  return Array.isArray(given) ? given.slice(0, mostArguments).map(cut) : []
}

function toView(group: GroupState, number: number): FailureGroup {
  const { errorType, name, example, isConsequence, count, firstTime, lastTime } = group
  const message = group.isUniform ? group.told : group.pattern
  const told = { errorType, message, name, firstTask: example.task, isConsequence, example }
  return { ...told, count, firstTime, lastTime, number }
}

/** Of an output the end counts. */
const endOf = (value: unknown): string => textOf(value).slice(-longestText)

const cut = (value: unknown): string => textOf(value).slice(0, longestText)

/** Within quotes a path may have spaces. */
const quotedPath = /(["'`])(?:[A-Za-z]:|[.~]{0,2})[/\\][^"'`\n]*\1/g
const path = /(?<![\w.~/\\-])(?:[A-Za-z]:|\.{0,2}|~)(?:[/\\][\w.@+~-]+)+[/\\]?/g
/** One without a slash in front is a path if its last part looks like the name of a file. */
const relativePath =
  /(?<![\w.~/\\-])[\w@+~-][\w.@+~-]*(?:[/\\][\w.@+~-]+)*[/\\][\w@+~-]+\.[A-Za-z]\w*/g
const uuid = /\b[\da-f]{8}-[\da-f]{4}-[\da-f]{4}-[\da-f]{4}-[\da-f]{12}\b/gi
const sessionId = /\bs-[\da-f]{8}\b/g
const word = /[A-Za-z\d]+/g
const hexWord = /^(?:0x[\da-f]+|[\da-f]{4,})$/i
/** Long enough that words made of a to f, such as `facade`, are not taken for ids. */
const hexLetters = /^[a-f]{8,}$/i

/** The message without what differs between failures of one cause, in linear time. */
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
