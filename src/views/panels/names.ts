/**
 * Names: the tasks of each name, with counts, progress and durations. Uses 14 bytes per task, 4
 * more if tasks are retried, one more if results are reused, and 37 bytes plus the text per name.
 */

import { addToValue, createColumn, createTextIndex, indexOf } from '../columns.ts'
import { setValue, textAt, type TextIndex, toArray, valueAt } from '../columns.ts'
import { hasDuration, hasEnded, hasStarted, stages, validSeconds } from '../lifecycle.ts'
import { readTaskName, numberOf, type Panel, resumption, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import { type DurationStats, statsOrNull } from '../stats.ts'

const createNames = () => ({
  names: createWithEmptyText(),
  taskTypes: createWithEmptyText(),
  /** The task type of each name. The columns up to `canceled` have one row per name. */
  typeOfName: createColumn('u8'),
  total: createColumn('u32'),
  running: createColumn('u32'),
  completed: createColumn('u32'),
  reused: createColumn('u32'),
  failed: createColumn('u32'),
  canceled: createColumn('u32'),
  /** 1 for tasks whose result was reused. A later session may run such a task. */
  isReused: createColumn('u8'),
  /** The latest report of each running task that reports progress. */
  reports: new Map<number, ProgressReport>(),
  /** The name of each task. The following columns have one row per task. */
  nameOfTask: createColumn('u32'),
  /** The running seconds of the task, without waits between attempts; NaN if it has no duration. */
  durations: createColumn('f64'),
  /** The running seconds of a canceled task; 0 for other tasks. */
  canceledAfter: createColumn('f32'),
  waits: createColumn('f32'),
  /** For each task that is between two attempts, the end of its previous attempt. */
  waitsSince: new Map<number, number>(),
  tasks: 0,
})

export type NamesState = ReturnType<typeof createNames>

/**
 * All tasks with the same name. The name of a workflow prompt is that of its step; the name of any
 * other task is its executable.
 */
export interface NameView {
  readonly name: string
  readonly taskType: string
  readonly total: number
  readonly running: number
  readonly waiting: number
  readonly progress: NameProgress | null
  readonly completed: number
  /** Completed tasks that did not run, because an earlier run or the cache had the result. */
  readonly reused: number
  readonly failed: number
  readonly canceled: number
  /** `null` if no task has finished. Set only if the query asked for it. */
  readonly duration?: DurationStats | null
}

export interface ProgressReport {
  /** The completed fraction, from 0 to 1. */
  readonly fraction: number
  readonly text: string
  readonly time: number
}

/** The progress of running tasks, as fractions from 0 to 1. */
export interface NameProgress {
  readonly mean: number
  readonly sum: number
  /** The latest text of the only running task; `""` if several tasks are running. */
  readonly text: string
}

export interface NamesQuery {
  /** Whether to compute statistics of durations. This visits all tasks. */
  readonly durations: boolean
}

/** The number of the empty text, which is the name of a task until an event names it. */
const unnamed = 0
/** The maximum number of task types; further ones are ignored. A valid file has at most three. */
const maxTypes = 200
const maxTextLength = 200

export const names: Panel<NamesState, NamesQuery, readonly NameView[]> = {
  create: createNames,

  take(state, event, step) {
    if (step === resumption) resetRunning(state)
    if (step.stage === 0 && step.task !== -1) recordAttempt(state, event, step)
    if (step.stage === 0 || step.after === step.before) return
    if (step.earlier !== 0) revertEnd(state, step)
    const isNew = step.before === 0 && step.earlier === 0
    const name = isNew ? addTask(state, event, step) : resolveName(state, event, step)
    countStage(state, name, event, step)
    if (step.stage === stages.completed && event.attributes['reused'] === true) {
      addToValue(state.reused, name, 1)
      setValue(state.isReused, step.task, 1)
    }
    if (hasEnded(step.after)) recordDuration(state, event, step)
  },

  /** Returns the names in order of first appearance. */
  show(state, query) {
    const durations = query.durations ? durationsByName(state) : null
    const open = collectOpenTasks(state)
    const shown: NameView[] = []
    for (let name = 0; name < state.names.size; name++) {
      if (valueAt(state.total, name) === 0) continue
      const view = toView(state, name, open.get(name) ?? noOpenTasks)
      shown.push(durations === null ? view : { ...view, duration: statsOrNull(durations[name]) })
    }
    return shown
  },
}

/** Uses the duration in the event, because tasks may end on an agent while no session runs. */
function recordDuration(state: NamesState, event: ViewEvent, { task, after }: TaskStep): void {
  const ran = Math.max(0, validSeconds(event.duration_seconds) - valueAt(state.waits, task))
  if (hasDuration(after)) setValue(state.durations, task, ran)
  else if (hasStarted(after) && ran > 0) setValue(state.canceledAfter, task, ran)
}

/** Resets the running tasks, because a session that has ended runs none. */
function resetRunning(state: NamesState): void {
  for (let name = 0; name < state.names.size; name++) setValue(state.running, name, 0)
  state.waitsSince.clear()
  state.reports.clear()
}

function revertEnd(state: NamesState, { task, earlier }: TaskStep): void {
  const name = valueAt(state.nameOfTask, task)
  if ((earlier & stages.completed) !== 0) addToValue(state.completed, name, -1)
  if (valueAt(state.isReused, task) !== 0) {
    addToValue(state.reused, name, -1)
    setValue(state.isReused, task, 0)
  }
  if ((earlier & stages.failed) !== 0) addToValue(state.failed, name, -1)
  if ((earlier & stages.canceled) !== 0) addToValue(state.canceled, name, -1)
  setValue(state.durations, task, Number.NaN)
  if (valueAt(state.waits, task) !== 0) setValue(state.waits, task, 0)
  if (valueAt(state.canceledAfter, task) !== 0) setValue(state.canceledAfter, task, 0)
}

function recordAttempt(state: NamesState, event: ViewEvent, { task, after }: TaskStep): void {
  const { event_type: type, event_time: time } = event
  if (hasEnded(after) || type === 'tutti.TaskResolved') return
  if (type !== 'tutti.TaskAttempt' || !hasStarted(after)) endWait(state, task, time)
  else if (!state.waitsSince.has(task)) state.waitsSince.set(task, time)
  const reported = type === 'tutti.TaskProgress' ? numberOf(event.fraction) : null
  if (reported === null) state.reports.delete(task)
  else {
    const fraction = Math.min(1, Math.max(0, reported))
    state.reports.set(task, { fraction, text: textOf(event.text).slice(0, maxTextLength), time })
  }
}

function endWait({ waits, waitsSince }: NamesState, task: number, time: number): void {
  const since = waitsSince.get(task)
  if (since === undefined) return
  addToValue(waits, task, Math.max(0, time - since))
  waitsSince.delete(task)
}

function createWithEmptyText(): TextIndex {
  const index = createTextIndex()
  indexOf(index, '')
  return index
}

/** Returns the known durations of all tasks, in order of first appearance. */
export function allDurations({ durations, tasks }: NamesState): Float64Array {
  const found = new Float64Array(tasks)
  let length = 0
  for (let task = 0; task < tasks; task++) {
    const seconds = valueAt(durations, task)
    if (!Number.isNaN(seconds)) found[length++] = seconds
  }
  return found.subarray(0, length)
}

/** Returns the number of completed tasks that did not run, because the result already existed. */
export function countReused({ names: { size }, reused }: NamesState): number {
  let sum = 0
  for (let name = 0; name < size; name++) sum += valueAt(reused, name)
  return sum
}

function addTask(state: NamesState, event: ViewEvent, { task }: TaskStep): number {
  const name = findOrAddName(state, event)
  state.tasks = task + 1
  addToValue(state.total, name, 1)
  setValue(state.nameOfTask, task, name)
  setValue(state.durations, task, Number.NaN)
  return name
}

/**
 * Returns the name of a task. A task without a name gets the first name in a later event, because
 * routing may choose a model.
 */
function resolveName(state: NamesState, event: ViewEvent, { task, before }: TaskStep): number {
  const name = valueAt(state.nameOfTask, task)
  if (name !== unnamed || readTaskName(event.attributes) === '') return name
  const found = findOrAddName(state, event)
  addToValue(state.total, name, -1)
  addToValue(state.total, found, 1)
  setValue(state.nameOfTask, task, found)
  if (hasStarted(before)) {
    addToValue(state.running, name, -1)
    addToValue(state.running, found, 1)
  }
  return found
}

function findOrAddName(state: NamesState, event: ViewEvent): number {
  const known = state.names.size
  const name = indexOf(state.names, readTaskName(event.attributes))
  if (name === known) {
    const type = state.taskTypes.size > maxTypes ? '' : textOf(event.attributes['task_type'])
    setValue(state.typeOfName, name, indexOf(state.taskTypes, type))
  }
  return name
}

function countStage(state: NamesState, name: number, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before } = step
  if (stage === stages.started) addToValue(state.running, name, 1)
  if (stage < stages.completed) return
  endWait(state, task, event.event_time)
  state.reports.delete(task)
  if (hasStarted(before)) addToValue(state.running, name, -1)
  if (stage === stages.completed) addToValue(state.completed, name, 1)
  else if (stage === stages.failed) addToValue(state.failed, name, 1)
  else addToValue(state.canceled, name, 1)
}

function toView(state: NamesState, name: number, open: OpenTasks): NameView {
  const { waiting, reporting, sum, text } = open
  const running = valueAt(state.running, name)
  return {
    name: textAt(state.names, name),
    taskType: textAt(state.taskTypes, valueAt(state.typeOfName, name)),
    total: valueAt(state.total, name),
    running,
    waiting,
    progress:
      reporting === 0
        ? null
        : { mean: sum / reporting, sum, text: running - waiting === 1 ? text : '' },
    completed: valueAt(state.completed, name),
    reused: valueAt(state.reused, name),
    failed: valueAt(state.failed, name),
    canceled: valueAt(state.canceled, name),
  }
}

/** The open tasks of a name that are between two attempts, or that report progress. */
interface OpenTasks {
  waiting: number
  reporting: number
  /** The sum of the fractions that are reported, and the text of the latest report. */
  sum: number
  text: string
}

const noOpenTasks: Readonly<OpenTasks> = { waiting: 0, reporting: 0, sum: 0, text: '' }

function collectOpenTasks(state: NamesState): ReadonlyMap<number, OpenTasks> {
  const found = new Map<number, OpenTasks>()
  const openOf = (task: number): OpenTasks => {
    const name = valueAt(state.nameOfTask, task)
    const own = found.get(name) ?? { ...noOpenTasks }
    found.set(name, own)
    return own
  }
  for (const task of state.waitsSince.keys()) openOf(task).waiting++
  for (const [task, { fraction, text }] of state.reports) {
    const own = openOf(task)
    own.reporting++
    own.sum += fraction
    own.text = text
  }
  return found
}

/** Returns `null` for a task that is not running, or whose attempt has reported no progress. */
export const progressReport = ({ reports }: NamesState, task: number): ProgressReport | null =>
  reports.get(task) ?? null

/** Returns the durations of tasks, by the number of their name. */
export function durationsByName(
  state: NamesState,
  isCounted: (task: number) => boolean = () => true,
): Float64Array[] {
  const { nameOfTask, tasks, total } = state
  const { size } = state.names
  const found = Array.from({ length: size }, (_, name) => new Float64Array(valueAt(total, name)))
  const counts = new Uint32Array(size)
  const [durations, nameOf] = [toArray(state.durations, tasks), toArray(nameOfTask, tasks)]
  for (let task = 0; task < tasks; task++) {
    const seconds = durations[task] ?? Number.NaN
    if (Number.isNaN(seconds) || !isCounted(task)) continue
    const name = nameOf[task] ?? 0
    const at = counts[name] ?? 0
    const nameDurations = found[name]
    if (nameDurations !== undefined) nameDurations[at] = seconds
    counts[name] = at + 1
  }
  return found.map((own, name) => own.subarray(0, counts[name]))
}
