/**
 * The tasks and attempts of a pass as flat arrays, so that a query over a million tasks takes
 * milliseconds. A copy of the pass at one moment: 41 bytes per task and 25 bytes per attempt.
 */

import type { RunPass } from '../all-panels.ts'
import { listStageTimes, type StageTimeArrays } from '../bounds/task-times.ts'
import { type Block, createRows, freeRows, toArray, valueAt } from '../columns.ts'
import { listStages } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'

export interface RunColumns extends StageTimeArrays {
  /** The number of tasks, and of rows in the arrays. */
  readonly tasks: number
  /** The stages that each task has passed; 0 for a number without a task. */
  readonly passed: Block
  /** 1 for tasks that an earlier session left unfinished and no later one has created again. */
  readonly isLeft: Block
  readonly name: Block
  readonly attempts: AttemptColumns
}

export interface AttemptColumns {
  readonly size: number
  readonly task: Block
  readonly lane: Block
  /** Infinity for a repeated report of an attempt, so that no time range contains this row. */
  readonly start: Block
  /** Infinity for a running attempt, and -Infinity for a repeated report. */
  readonly end: Block
  readonly outcome: Block
}

/** Reuses the memory of `earlier`, which must not be used any more. */
export function collectColumns(pass: RunPass, earlier?: RunColumns): RunColumns {
  const { counts, states } = pass
  const tasks = counts.index.names.size
  const { passed, isLeft } = listStages(counts, earlier)
  const times = listStageTimes(states.bounds.times, passed, earlier)
  const name = toArray(states.names.nameOfTask, tasks, earlier?.name)
  const attempts = collectAttempts(pass, earlier?.attempts)
  return { tasks, passed, isLeft, name, ...times, attempts }
}

/** Frees the memory now. The columns must not be used any more. */
export function freeColumns({ attempts, ...columns }: RunColumns): void {
  for (const rows of [...Object.values(columns), ...Object.values(attempts)]) {
    if (ArrayBuffer.isView(rows)) freeRows(rows)
  }
}

function collectAttempts({ states: { lanes } }: RunPass, earlier?: AttemptColumns): AttemptColumns {
  const { size, seconds } = lanes
  const start = toArray(lanes.start, size, earlier?.start)
  const outcome = toArray(lanes.outcome, size, earlier?.outcome)
  const end = createRows('f64', size, earlier?.end)
  for (let at = 0; at < size; at++) {
    const isRunning = outcome[at] === outcomeNumbers.running
    end[at] = isRunning ? Infinity : (start[at] ?? 0) + valueAt(seconds, at)
    if (outcome[at] === outcomeNumbers.repeated) [start[at], end[at]] = [Infinity, -Infinity]
  }
  const task = toArray(lanes.task, size, earlier?.task)
  return { size, task, lane: toArray(lanes.lane, size, earlier?.lane), start, end, outcome }
}
