/**
 * The tasks and attempts of a pass as flat arrays, so that a query over a million tasks takes
 * milliseconds. A copy of the pass at one moment: 41 bytes per task and 25 bytes per attempt.
 */

import type { RunPass } from '../all-panels.ts'
import { listStageTimes, type StageTimeArrays } from '../bounds/task-times.ts'
import { type Block, type Column, toArray } from '../columns.ts'
import { listStages } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'

export interface RunColumns extends StageTimeArrays {
  /** The number of tasks, and of rows in the arrays. */
  readonly tasks: number
  /** The stages that each task has passed; 0 for a number without a task. */
  readonly passed: Block
  /** 1 for tasks that an earlier session left unfinished and no later session has created. */
  readonly isLeft: Uint8Array
  readonly name: Block
  readonly attempts: AttemptColumns
}

export interface AttemptColumns {
  readonly size: number
  readonly task: Block
  readonly lane: Block
  /** Infinity for a repeated report of an attempt, so that it is in no range. */
  readonly start: Float64Array
  /** Infinity for a running attempt, and -Infinity for a repeated report. */
  readonly end: Float64Array
  readonly outcome: Block
}

export function collectColumns(pass: RunPass): RunColumns {
  const { counts, states } = pass
  const tasks = counts.index.names.size
  const { passed, isLeft } = listStages(counts)
  const times = listStageTimes(states.bounds.times, passed)
  const name = toArray(states.names.nameOfTask, tasks)
  return { tasks, passed, isLeft, name, ...times, attempts: collectAttempts(pass) }
}

function collectAttempts({ states: { lanes } }: RunPass): AttemptColumns {
  const { size } = lanes
  const rows = (column: Column): Block => toArray(column, size)
  const start = rows(lanes.start) as Float64Array
  const outcome = rows(lanes.outcome)
  const seconds = rows(lanes.seconds)
  const end = new Float64Array(size)
  for (let at = 0; at < size; at++) {
    const isRunning = outcome[at] === outcomeNumbers.running
    end[at] = isRunning ? Infinity : (start[at] ?? 0) + (seconds[at] ?? 0)
    if (outcome[at] === outcomeNumbers.repeated) [start[at], end[at]] = [Infinity, -Infinity]
  }
  return { size, task: rows(lanes.task), lane: rows(lanes.lane), start, end, outcome }
}
