/**
 * Names: the tasks of each name, with counts, progress and durations. 14 bytes per task, 4 more if
 * tasks are retried, one more if results are reused, and 37 bytes plus the text per name.
 */

import { addToValue, type Column, createColumn, createTextIndex, indexOf } from '../columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from '../columns.ts'
import { hasDuration, hasEnded, hasStarted, stages, validSeconds } from '../lifecycle.ts'
import { nameIn, numberOf, type Panel, resumption, type TaskStep, textOf } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import { type DurationStats, statsInPlace } from '../stats.ts'

export interface NamesState {
  readonly names: TextIndex
  readonly taskTypes: TextIndex
  /** The following columns have one row per name. */
  readonly typeOfName: Column
  readonly total: Column
  readonly running: Column
  /** The number of running tasks that are between two attempts. */
  readonly waiting: Column
  /** The number of running tasks that report progress, and the sum of their percentages. */
  readonly reporting: Column
  readonly percents: Column
  readonly completed: Column
  /** The number of completed tasks that did not run, because the result already existed. */
  readonly reused: Column
  readonly failed: Column
  readonly canceled: Column
  /** 1 for tasks whose result was reused; a later session may run such a task. */
  readonly isReused: Column
  /** The latest report of each running task that reports progress. */
  readonly reports: Map<number, ProgressReport>
  /** The following columns have one row per task. */
  readonly nameOfTask: Column
  readonly isWaiting: Column
  /** The percentage plus 1; 0 for a task without progress. */
  readonly percentOfTask: Column
  /** Running seconds of the task, without waits between attempts; NaN if it has no duration. */
  readonly durations: Column
  /** Running seconds of a canceled task; 0 for other tasks. */
  readonly canceledAfter: Column
  /** Seconds between the attempts of a task. */
  readonly waits: Column
  /** The start of the wait of each task that is between two attempts. */
  readonly waitsSince: Map<number, number>
  tasks: number
}

/** All tasks with one name: the step's name for a workflow prompt, otherwise the executable. */
export interface NameView {
  readonly name: string
  readonly taskType: string
  readonly total: number
  readonly running: number
  /** Running tasks that wait for their next attempt. */
  readonly waiting: number
  /** The progress of running tasks that report it; `null` if none does. */
  readonly progress: NameProgress | null
  readonly completed: number
  /** Completed tasks that did not run, because an earlier run or the cache had the result. */
  readonly reused: number
  readonly failed: number
  readonly canceled: number
  /** Only set if the query asked for it; `null` if no task has finished. */
  readonly duration?: DurationStats | null
}

/** The progress reported by a task. */
export interface ProgressReport {
  /** From 0 to 1. */
  readonly fraction: number
  /** `""` if the task reported no text. */
  readonly text: string
  readonly time: number
}

/** The progress of running tasks, as fractions from 0 to 1. */
export interface NameProgress {
  readonly mean: number
  readonly sum: number
  /** The latest text if only one task is running; otherwise `""`, because the mean is shown. */
  readonly text: string
}

export interface NamesQuery {
  /** Whether to compute statistics of durations, which visits all tasks. */
  readonly durations: boolean
}

/** The number of the empty text: the name of a task before any event names it. */
const unnamed = 0
/** There are three task types; additional types in a damaged file are ignored. */
const maxTypes = 200
const maxTextLength = 200

export const names: Panel<NamesState, NamesQuery, readonly NameView[]> = {
  create: () => ({
    names: createWithEmptyText(),
    taskTypes: createWithEmptyText(),
    typeOfName: createColumn('u8'),
    total: createColumn('u32'),
    running: createColumn('u32'),
    waiting: createColumn('u32'),
    reporting: createColumn('u32'),
    percents: createColumn('u32'),
    reports: new Map(),
    completed: createColumn('u32'),
    reused: createColumn('u32'),
    failed: createColumn('u32'),
    canceled: createColumn('u32'),
    isReused: createColumn('u8'),
    nameOfTask: createColumn('u32'),
    isWaiting: createColumn('u8'),
    percentOfTask: createColumn('u8'),
    durations: createColumn('f64'),
    canceledAfter: createColumn('f32'),
    waits: createColumn('f32'),
    waitsSince: new Map(),
    tasks: 0,
  }),

  take(state, event, step) {
    if (step === resumption) endRunning(state)
    if (step.stage === 0 && step.task !== -1) followTask(state, event, step)
    if (step.stage === 0 || step.after === step.before) return
    if (step.earlier !== 0) forgetEnd(state, step)
    const isNew = step.before === 0 && step.earlier === 0
    const name = isNew ? addTask(state, event, step) : renamed(state, event, step)
    count(state, name, event, step)
    if (step.stage === stages.completed && event.attributes['reused'] === true) {
      addToValue(state.reused, name, 1)
      setValue(state.isReused, step.task, 1)
    }
    if (hasEnded(step.after)) recordDuration(state, event, step)
  },

  /** Returns names in order of first appearance. */
  show(state, query) {
    const durations = query.durations ? durationsByName(state) : null
    const texts = textsByName(state)
    const shown: NameView[] = []
    for (let name = 0; name < state.names.size; name++) {
      if (valueAt(state.total, name) === 0) continue
      const view = toView(state, name, texts)
      shown.push(durations === null ? view : { ...view, duration: statsOf(durations[name]) })
    }
    return shown
  },
}

/** Uses the duration in the event: tasks may end on an agent while no session is running. */
function recordDuration(state: NamesState, event: ViewEvent, { task, after }: TaskStep): void {
  const ran = Math.max(0, validSeconds(event.duration_seconds) - valueAt(state.waits, task))
  if (hasDuration(after)) setValue(state.durations, task, ran)
  else if (hasStarted(after) && ran > 0) setValue(state.canceledAfter, task, ran)
}

/** After a session has ended, none of its tasks is running. */
function endRunning(state: NamesState): void {
  for (const column of [state.running, state.waiting, state.reporting, state.percents]) {
    for (let name = 0; name < state.names.size; name++) setValue(column, name, 0)
  }
  state.waitsSince.clear()
  state.reports.clear()
  for (let task = 0; task < state.tasks; task++) {
    setValue(state.isWaiting, task, 0)
    setValue(state.percentOfTask, task, 0)
  }
}

/** Reverts the counts of an earlier session for a task that runs again. */
function forgetEnd(state: NamesState, { task, earlier }: TaskStep): void {
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

/** Handles events outside the lifecycle: failed or started attempts, and progress. */
function followTask(state: NamesState, event: ViewEvent, { task, after }: TaskStep): void {
  if (hasEnded(after) || event.event_type === 'tutti.TaskResolved') return
  const name = valueAt(state.nameOfTask, task)
  const isWaiting = event.event_type === 'tutti.TaskAttempt' && hasStarted(after)
  setWaiting(state, name, task, isWaiting, event)
  const reported = event.event_type === 'tutti.TaskProgress' ? numberOf(event.fraction) : null
  if (reported === null) {
    setPercent(state, name, task, null)
    return
  }
  const fraction = Math.min(1, Math.max(0, reported))
  setPercent(state, name, task, Math.round(fraction * 100))
  const text = textOf(event.text).slice(0, maxTextLength)
  state.reports.set(task, { fraction, text, time: event.event_time })
}

function setWaiting(
  state: NamesState,
  name: number,
  task: number,
  isWaiting: boolean,
  { event_time: time }: ViewEvent,
): void {
  const before = valueAt(state.isWaiting, task)
  const after = isWaiting ? 1 : 0
  if (before === after) return
  setValue(state.isWaiting, task, after)
  addToValue(state.waiting, name, after - before)
  if (isWaiting) {
    state.waitsSince.set(task, time)
    return
  }
  addToValue(state.waits, task, Math.max(0, time - (state.waitsSince.get(task) ?? time)))
  state.waitsSince.delete(task)
}

function setPercent(state: NamesState, name: number, task: number, percent: number | null): void {
  const before = valueAt(state.percentOfTask, task)
  const after = percent === null ? 0 : percent + 1
  if (after === 0 && before !== 0) state.reports.delete(task)
  setValue(state.percentOfTask, task, after)
  addToValue(state.reporting, name, Math.sign(after) - Math.sign(before))
  addToValue(state.percents, name, Math.max(0, after - 1) - Math.max(0, before - 1))
}

function createWithEmptyText(): TextIndex {
  const index = createTextIndex()
  indexOf(index, '')
  return index
}

/** The known durations of all tasks, in order of first appearance. */
export function allDurations({ durations, tasks }: NamesState): Float64Array {
  const found = new Float64Array(tasks)
  let length = 0
  for (let task = 0; task < tasks; task++) {
    const seconds = valueAt(durations, task)
    if (!Number.isNaN(seconds)) found[length++] = seconds
  }
  return found.subarray(0, length)
}

/** The number of completed tasks that did not run, because the result already existed. */
export function allReused({ names: { size }, reused }: NamesState): number {
  let sum = 0
  for (let name = 0; name < size; name++) sum += valueAt(reused, name)
  return sum
}

function addTask(state: NamesState, event: ViewEvent, { task }: TaskStep): number {
  const name = nameOf(state, event)
  state.tasks = task + 1
  addToValue(state.total, name, 1)
  setValue(state.nameOfTask, task, name)
  setValue(state.durations, task, Number.NaN)
  return name
}

/** A task without a name takes the first name in a later event: routing may choose a model. */
function renamed(state: NamesState, event: ViewEvent, { task, before }: TaskStep): number {
  const name = valueAt(state.nameOfTask, task)
  if (name !== unnamed || nameIn(event.attributes) === '') return name
  const found = nameOf(state, event)
  addToValue(state.total, name, -1)
  addToValue(state.total, found, 1)
  setValue(state.nameOfTask, task, found)
  if (hasStarted(before)) {
    addToValue(state.running, name, -1)
    addToValue(state.running, found, 1)
  }
  return found
}

function nameOf(state: NamesState, event: ViewEvent): number {
  const known = state.names.size
  const name = indexOf(state.names, nameIn(event.attributes))
  if (name === known) {
    const type = state.taskTypes.size > maxTypes ? '' : textOf(event.attributes['task_type'])
    setValue(state.typeOfName, name, indexOf(state.taskTypes, type))
  }
  return name
}

function count(state: NamesState, name: number, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before } = step
  if (stage === stages.started) addToValue(state.running, name, 1)
  if (stage < stages.completed) return
  setWaiting(state, name, task, false, event)
  setPercent(state, name, task, null)
  if (hasStarted(before)) addToValue(state.running, name, -1)
  if (stage === stages.completed) addToValue(state.completed, name, 1)
  else if (stage === stages.failed) addToValue(state.failed, name, 1)
  else addToValue(state.canceled, name, 1)
}

function toView(state: NamesState, name: number, texts: ReadonlyMap<number, string>): NameView {
  return {
    name: textAt(state.names, name),
    taskType: textAt(state.taskTypes, valueAt(state.typeOfName, name)),
    total: valueAt(state.total, name),
    running: valueAt(state.running, name),
    waiting: valueAt(state.waiting, name),
    progress: progressOf(state, name, texts.get(name) ?? ''),
    completed: valueAt(state.completed, name),
    reused: valueAt(state.reused, name),
    failed: valueAt(state.failed, name),
    canceled: valueAt(state.canceled, name),
  }
}

/** For each name with exactly one running task, the latest text of that task. */
function textsByName(state: NamesState): ReadonlyMap<number, string> {
  const texts = new Map<number, string>()
  for (const [task, { text }] of state.reports) {
    const name = valueAt(state.nameOfTask, task)
    const running = valueAt(state.running, name) - valueAt(state.waiting, name)
    if (running === 1) texts.set(name, text)
  }
  return texts
}

function progressOf(state: NamesState, name: number, text: string): NameProgress | null {
  const reporting = valueAt(state.reporting, name)
  if (reporting === 0) return null
  const sum = valueAt(state.percents, name) / 100
  return { mean: sum / reporting, sum, text }
}

/** Returns `null` for a task that is not running or has reported nothing in its attempt. */
export const progressReport = ({ reports }: NamesState, task: number): ProgressReport | null =>
  reports.get(task) ?? null

const statsOf = (durations: Float64Array | undefined): DurationStats | null =>
  durations === undefined || durations.length === 0 ? null : statsInPlace(durations)

/** The durations of tasks, indexed by the number of their name. */
export function durationsByName(
  state: NamesState,
  isCounted: (task: number) => boolean = () => true,
): Float64Array[] {
  const { nameOfTask, tasks, total } = state
  const { size } = state.names
  const found = Array.from({ length: size }, (_, name) => new Float64Array(valueAt(total, name)))
  const counts = new Uint32Array(size)
  for (let task = 0; task < tasks; task++) {
    const seconds = valueAt(state.durations, task)
    if (Number.isNaN(seconds) || !isCounted(task)) continue
    const name = valueAt(nameOfTask, task)
    const at = counts[name] ?? 0
    const own = found[name]
    if (own !== undefined) own[at] = seconds
    counts[name] = at + 1
  }
  return found.map((own, name) => own.subarray(0, counts[name]))
}
