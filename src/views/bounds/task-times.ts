/**
 * The times at which each task reached its stages. The first time is stored with 64 bits. The
 * others are differences with 32 bits, with a relative error below one ten-millionth. Uses 28 bytes
 * per task.
 */

import {
  type Block,
  type Column,
  createColumn,
  createRows,
  setValue,
  toArray,
  valueAt,
} from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import type { TaskStep, ViewEvent } from '../panel.ts'

export const createTaskTimes = () => ({
  /** The time of the first event of each task. */
  created: createColumn('f64'),
  /** Seconds until the last dependency ended; NaN while unknown. */
  dependencies: createColumn('f32'),
  /** Seconds from being ready until a backend was assigned. */
  routing: createColumn('f32'),
  /** Seconds from the assignment of a backend until the task was in the backend's queue. */
  handover: createColumn('f32'),
  queue: createColumn('f32'),
  /**
   * Seconds until the task ended, including all attempts. They count from the start, or from the
   * last stage if the task did not start.
   */
  run: createColumn('f32'),
  /** The stages that the task had passed when a session left it unfinished. */
  left: createColumn('u8'),
})

export type TaskTimes = ReturnType<typeof createTaskTimes>

/** The times of one task in wall-clock seconds; `null` for a stage that was not reached. */
export interface StageTimes {
  readonly created: number
  readonly ready: number | null
  readonly submitted: number | null
  readonly queued: number | null
  readonly started: number | null
  readonly ended: number | null
}

/** Records the time of a stage. Call this for each event that changes its task's stages. */
export function recordStage(times: TaskTimes, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before, after, earlier } = step
  const { event_time: time, attributes } = event
  if (before === 0) {
    if (isLeft(earlier)) keepEarlierTimes(times, task, earlier)
    else beginTask(times, task, time, attributes['dependencies'])
  }
  const column = columnFor(times, after, stage)
  if (column === null || (!hasEnded(after) && (leftStages(times, task) & stage) !== 0)) return
  if (Number.isNaN(valueAt(times.dependencies, task))) recordReady(times, task, time)
  setValue(column, task, Math.max(0, time - latestTime(times, task)))
}

/** Whether the task was left unfinished, or was canceled because its session ended. */
const isLeft = (passed: number): boolean =>
  (passed & stages.submitted) !== 0 && (passed & (stages.completed | stages.failed)) === 0

function keepEarlierTimes(times: TaskTimes, task: number, passed: number): void {
  setValue(times.left, task, passed)
  setValue(times.run, task, 0)
}

function beginTask(times: TaskTimes, task: number, time: number, dependencies: unknown): void {
  setValue(times.created, task, time)
  for (const column of phaseColumns(times)) setValue(column, task, 0)
  if (leftStages(times, task) !== 0) setValue(times.left, task, 0)
  const isWaiting = Array.isArray(dependencies) && dependencies.length > 0
  if (isWaiting) setValue(times.dependencies, task, Number.NaN)
}

/** Returns the stages that the task had passed when an earlier session left it unfinished, or 0. */
export const leftStages = ({ left }: TaskTimes, task: number): number => valueAt(left, task)

/** Sets the running time of a task that continued on an agent after its session was killed. */
export const setRun = (times: TaskTimes, task: number, seconds: number): void =>
  setValue(times.run, task, seconds)

/** Moves the start of a task to `seconds` before its reported start. */
export function moveStart(times: TaskTimes, task: number, seconds: number): void {
  const queue = valueAt(times.queue, task)
  const waited = leftStages(times, task) === 0 ? 0 : Math.min(queue, seconds)
  setValue(times.queue, task, queue - waited)
  // Without the earlier file, nothing before the start is known, so the creation moves as well.
  setValue(times.created, task, valueAt(times.created, task) - (seconds - waited))
  setValue(times.run, task, valueAt(times.run, task) + seconds)
}

export function recordReady(times: TaskTimes, task: number, time: number): void {
  if (!Number.isNaN(valueAt(times.dependencies, task))) return
  setValue(times.dependencies, task, Math.max(0, time - valueAt(times.created, task)))
}

function columnFor(times: TaskTimes, after: number, stage: number): Column | null {
  if (hasEnded(after)) return times.run
  if (stage === stages.submitted) return times.routing
  if (stage === stages.queued) return times.handover
  return stage === stages.started ? times.queue : null
}

const phaseColumns = ({ dependencies, routing, handover, queue, run }: TaskTimes): Column[] => [
  dependencies,
  routing,
  handover,
  queue,
  run,
]

function latestTime(times: TaskTimes, task: number): number {
  let time = valueAt(times.created, task)
  for (const column of phaseColumns(times)) time += valueAt(column, task)
  return time
}

/** Returns the times of a task. `passed` is the set of stages that the task has passed. */
export function readStageTimes(times: TaskTimes, task: number, passed: number): StageTimes {
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

/** The times of all tasks, by number; NaN for a stage that was not reached. */
export interface StageTimeArrays {
  readonly created: Block
  readonly ready: Block
  readonly started: Block
  readonly ended: Block
}

/** Returns `readStageTimes` of all tasks. `passed` are the stages that each task has passed. */
export function listStageTimes(
  times: TaskTimes,
  passed: Block,
  earlier?: StageTimeArrays,
): StageTimeArrays {
  const size = passed.length
  const created = toArray(times.created, size, earlier?.created)
  const ready = createRows('f64', size, earlier?.ready)
  const started = createRows('f64', size, earlier?.started)
  const ended = createRows('f64', size, earlier?.ended)
  const { dependencies, routing, handover, queue, run } = times
  for (let task = 0; task < size; task++) {
    const stage = passed[task] ?? 0
    if (stage === 0) created[task] = Number.NaN
    const isReady = (created[task] ?? 0) + valueAt(dependencies, task)
    const startTime =
      isReady + valueAt(routing, task) + valueAt(handover, task) + valueAt(queue, task)
    ready[task] = isReady
    started[task] = hasStarted(stage) ? startTime : Number.NaN
    ended[task] = hasEnded(stage) ? startTime + valueAt(run, task) : Number.NaN
  }
  return { created, ready, started, ended }
}
