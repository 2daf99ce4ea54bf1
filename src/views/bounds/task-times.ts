/**
 * When each task reached its stages, as the waits between them. 28 bytes a task: the first time in
 * full, the waits as numbers of 32 bits, which are exact to a ten-millionth part.
 */

import { type Column, createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import type { TaskStep, ViewEvent } from '../panel.ts'

export interface TaskTimes {
  /** The time of the task's first event. */
  readonly created: Column
  /** Until its last dependency had ended; NaN while that is not known. */
  readonly dependencies: Column
  /** From then until a backend was assigned. */
  readonly routing: Column
  /** From then until it was handed to the backend's queue. */
  readonly handover: Column
  /** From then until it began. */
  readonly queue: Column
  /** From then, or from the last stage that it passed, until its end; all attempts included. */
  readonly run: Column
  /** The stages that a task had passed when a session left it unfinished: their times stay. */
  readonly left: Column
}

/** The story of one task, in wall-clock seconds; `null` for what has not happened. */
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

/** Call for the lifecycle events that change their task. */
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

/** Also one that its session canceled when it ended: it waits for the next one. */
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

/** The stages that it had passed when an earlier session left it unfinished; 0 for none. */
export const leftAt = ({ left }: TaskTimes, task: number): number => valueAt(left, task)

/** It ran on for so long in all, on an agent, after its session was killed. */
export const setRun = (times: TaskTimes, task: number, seconds: number): void =>
  setValue(times.run, task, seconds)

/** It began so much earlier than was told when it began. */
export function moveStart(times: TaskTimes, task: number, seconds: number): void {
  const queue = valueAt(times.queue, task)
  const waited = leftAt(times, task) === 0 ? 0 : Math.min(queue, seconds)
  setValue(times.queue, task, queue - waited)
  // Of a task whose earlier file is missing nothing is known before.
  setValue(times.created, task, valueAt(times.created, task) - (seconds - waited))
  setValue(times.run, task, valueAt(times.run, task) + seconds)
}

/** Its dependencies have ended. */
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

/** `passed`: the stages that the task has passed, as `counts` knows them. */
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
