/**
 * Counts the lifecycle of tasks: the stages that each task has passed, and the totals. No other
 * code counts them. The panel `counts` uses this code for a record, and telemetry for its task
 * table.
 */

/** One bit for each lifecycle event, in the order in which a task passes them. */
export const stages = {
  created: 1,
  submitted: 2,
  queued: 4,
  started: 8,
  completed: 16,
  failed: 32,
  canceled: 64,
} as const

const { created, submitted, queued, started, completed, failed, canceled } = stages
const ended = completed | failed | canceled

export const createTotals = () => ({
  /** The number of tasks with at least one lifecycle event. */
  tasks: 0,
  submitted: 0,
  started: 0,
  completed: 0,
  failed: 0,
  canceled: 0,
  queued: 0,
  running: 0,
  /** The number of tasks that were RUNNING and reached DONE or FAILED. */
  durationCount: 0,
  durationSum: 0,
})

export type TaskTotals = ReturnType<typeof createTotals>

/** Returns the stage that an event of this type marks, or 0 for other events. */
export function stageOf(eventType: string): number {
  switch (eventType) {
    case 'TaskCreated':
      return created
    case 'TaskSubmitted':
      return submitted
    case 'TaskQueued':
      return queued
    case 'TaskStarted':
      return started
    case 'TaskCompleted':
      return completed
    case 'TaskFailed':
      return failed
    case 'TaskCanceled':
      return canceled
    default:
      return 0
  }
}

/**
 * Counts one lifecycle event of a task and returns the task's new stages. A repeated event, or any
 * event after the task has ended, changes nothing.
 */
export function countStage(
  totals: TaskTotals,
  passed: number,
  stage: number,
  durationSeconds: number,
): number {
  if ((passed & (stage | ended)) !== 0) return passed
  if (passed === 0) totals.tasks++
  switch (stage) {
    case submitted:
      totals.submitted++
      break
    case queued:
      if (!hasStarted(passed)) totals.queued++
      break
    case started:
      totals.started++
      totals.running++
      if (isQueued(passed)) totals.queued--
      break
    case completed:
      totals.completed++
      endTask(totals, passed, durationSeconds)
      break
    case failed:
      totals.failed++
      endTask(totals, passed, durationSeconds)
      break
    case canceled:
      totals.canceled++
      endTask(totals, passed, null)
      break
  }
  return passed | stage
}

/**
 * Whether a task that was DONE in an earlier session stays DONE after an event of a later session.
 * `passed` is the set of stages in earlier sessions; `stage` and `isReused` describe the event. A
 * task stays DONE while later sessions only reuse its result, or cancel the task before it starts.
 * Once a session runs the task again, because a user asked for it or its value was not stored, the
 * result of that session counts. FAILED and CANCELED count until a later session creates the task
 * again, so that failures repaired by a resume are not counted.
 */
export const staysEnded = (passed: number, stage: number, isReused: boolean): boolean =>
  (passed & completed) !== 0 &&
  (isReused || (stage & (created | submitted | queued | canceled)) !== 0)

/** Counts the creation of a DONE task that runs again, which `staysEnded` had skipped. */
export function countCreation(totals: TaskTotals): number {
  return countStage(totals, countStage(totals, 0, created, 0), submitted, 0)
}

/**
 * Reverts the counts of `countStage` for a task that a later session of the run creates again. Its
 * duration stays in the sums, because the task did run.
 */
export function forgetStages(totals: TaskTotals, passed: number): void {
  totals.tasks--
  if ((passed & submitted) !== 0) totals.submitted--
  if ((passed & started) !== 0) totals.started--
  if ((passed & completed) !== 0) totals.completed--
  if ((passed & failed) !== 0) totals.failed--
  if ((passed & canceled) !== 0) totals.canceled--
}

/** `durationSeconds` is `null` if the totals must not include the duration. */
function endTask(totals: TaskTotals, passed: number, durationSeconds: number | null): void {
  if (isQueued(passed)) totals.queued--
  if (!hasStarted(passed)) return
  totals.running--
  if (durationSeconds === null) return
  totals.durationCount++
  totals.durationSum += durationSeconds
}

export const hasStarted = (passed: number): boolean => (passed & started) !== 0

/** Whether the task is queued and has not started. Call this only for a task that has not ended. */
export const isQueued = (passed: number): boolean => (passed & (queued | started)) === queued

export const hasEnded = (passed: number): boolean => (passed & ended) !== 0

/** Whether the duration of the task counts, because it was RUNNING and reached DONE or FAILED. */
export const hasDuration = (passed: number): boolean =>
  hasStarted(passed) && (passed & (completed | failed)) !== 0

/** Returns a terminal event's duration; 0 if negative or not finite, so that sums stay finite. */
export const validSeconds = (seconds: unknown): number =>
  typeof seconds === 'number' && seconds > 0 && seconds < Infinity ? seconds : 0
