/**
 * The times at which each task reached its stages, stored as differences. 28 bytes per task: the
 * first time has 64 bits, the differences have 32, which is exact to one ten-millionth.
 */

import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import type { TaskStep, ViewEvent } from '../panel.ts'

export interface TaskTimes {
  /** The time of the task's first event. */
  readonly created: Column
  /** Seconds until the last dependency ended; NaN while that is unknown. */
  readonly dependencies: Column
  /** Seconds from being ready until a backend was assigned. */
  readonly routing: Column
  /** Seconds from that assignment until the task was in the backend's queue. */
  readonly handover: Column
  /** Seconds from being queued until the task started. */
  readonly queue: Column
  /** Seconds from the start, or the last stage, until the task ended, including all attempts. */
  readonly run: Column
  /** The stages that the task had passed when a session left it unfinished. */
  readonly left: Column
}

/** The times of one task in wall-clock seconds; `null` for a stage not reached. */
export interface TaskStory {
  readonly created: number
  readonly ready: number | null
  readonly submitted: number | null
  readonly queued: number | null
  readonly started: number | null
  readonly ended: number | null
}

export const createTaskTimes = (): TaskTimes => ({
  created: createColumn('f64'),
  dependencies: createColumn('f32'),
  routing: createColumn('f32'),
  handover: createColumn('f32'),
  queue: createColumn('f32'),
  run: createColumn('f32'),
  left: createColumn('u8'),
})

/** Call for each lifecycle event that changes the stages of its task. */
export function recordStage(times: TaskTimes, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before, after, earlier } = step
  const { event_time: time, attributes } = event
  if (before === 0) {
    if (isLeft(earlier)) leave(times, task, earlier)
    else begin(times, task, time, attributes['dependencies'])
  }
  const column = columnOf(times, after, stage)
  if (column === null || (!hasEnded(after) && (leftAt(times, task) & stage) !== 0)) return
  if (Number.isNaN(valueAt(times.dependencies, task))) recordReady(times, task, time)
  setValue(column, task, Math.max(0, time - latestOf(times, task)))
}

/** Whether the task was left unfinished, or canceled because its session ended. */
const isLeft = (passed: number): boolean =>
  (passed & stages.submitted) !== 0 && (passed & (stages.completed | stages.failed)) === 0

function leave(times: TaskTimes, task: number, passed: number): void {
  setValue(times.left, task, passed)
  setValue(times.run, task, 0)
}

function begin(times: TaskTimes, task: number, time: number, dependencies: unknown): void {
  setValue(times.created, task, time)
  for (const column of waitsOf(times)) setValue(column, task, 0)
  if (leftAt(times, task) !== 0) setValue(times.left, task, 0)
  const isWaiting = Array.isArray(dependencies) && dependencies.length > 0
  if (isWaiting) setValue(times.dependencies, task, Number.NaN)
}

/** The stages that the task had passed when an earlier session left it unfinished; 0 for none. */
export const leftAt = ({ left }: TaskTimes, task: number): number => valueAt(left, task)

/** Sets the running time of a task that continued on an agent after its session was killed. */
export const setRun = (times: TaskTimes, task: number, seconds: number): void =>
  setValue(times.run, task, seconds)

/** Moves the start of a task back: it started `seconds` before its start was reported. */
export function moveStart(times: TaskTimes, task: number, seconds: number): void {
  const queue = valueAt(times.queue, task)
  const waited = leftAt(times, task) === 0 ? 0 : Math.min(queue, seconds)
  setValue(times.queue, task, queue - waited)
  // Without the earlier file, nothing is known before the start: the creation moves as well.
  setValue(times.created, task, valueAt(times.created, task) - (seconds - waited))
  setValue(times.run, task, valueAt(times.run, task) + seconds)
}

/** Records that the dependencies of the task have ended. */
export function recordReady(times: TaskTimes, task: number, time: number): void {
  if (!Number.isNaN(valueAt(times.dependencies, task))) return
  setValue(times.dependencies, task, Math.max(0, time - valueAt(times.created, task)))
}

function columnOf(times: TaskTimes, after: number, stage: number): Column | null {
  if (hasEnded(after)) return times.run
  if (stage === stages.submitted) return times.routing
  if (stage === stages.queued) return times.handover
  return stage === stages.started ? times.queue : null
}

const waitsOf = ({ dependencies, routing, handover, queue, run }: TaskTimes): Column[] => [
  dependencies,
  routing,
  handover,
  queue,
  run,
]

function latestOf(times: TaskTimes, task: number): number {
  let time = valueAt(times.created, task)
  for (const column of waitsOf(times)) time += valueAt(column, task)
  return time
}

/** `passed` is the set of stages that the task has passed, from the state of `counts`. */
export function storyOf(times: TaskTimes, task: number, passed: number): TaskStory {
  const created = valueAt(times.created, task)
  const ready = created + valueAt(times.dependencies, task)
  const submitted = ready + valueAt(times.routing, task)
  const queued = submitted + valueAt(times.handover, task)
  const started = queued + valueAt(times.queue, task)
  return {
    created,
    ready: Number.isNaN(ready) ? null : ready,
    submitted: (passed & stages.submitted) === 0 ? null : submitted,
    queued: (passed & stages.queued) === 0 ? null : queued,
    started: hasStarted(passed) ? started : null,
    ended: hasEnded(passed) ? started + valueAt(times.run, task) : null,
  }
}
