/** Hypothetical runs, each with one change, and the minimum time that their tasks would need. */

import { valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { outcomeNumbers } from '../panels/lanes.ts'
import { activeTime, type BoundsQuery, type BoundsState } from './bounds-state.ts'
import { Chains, isBlock, type TaskRuns } from './chains.ts'
import { type HeldResource, oneCore } from './slots.ts'

export interface ChangedRun {
  /** Seconds of the longest chain of the changed run. */
  readonly path: number
  /** The resources that each backend's tasks use less: units times seconds. */
  readonly freed: Readonly<Record<string, Readonly<Record<HeldResource, number>>>>
  /** Seconds until the last task that started before the first change has ended. */
  readonly earliestEnd: number
}

/** The difference from the actual run. */
interface Change {
  /** The share by which an attempt becomes shorter. Default 0. */
  readonly shareOf?: (task: number, outcome: number) => number
  /** Whether retries follow without delay. Default `false`. */
  readonly isWithoutDelays?: boolean
}

export function changeRun(
  state: BoundsState,
  query: BoundsQuery,
  runs: TaskRuns,
  { shareOf, isWithoutDelays = false }: Change,
): ChangedRun {
  const { lanes } = query
  const freed: Record<string, Record<HeldResource, number>> = {}
  /** Saved seconds per task, as far as they are part of the task's running time. */
  const saved = new Float64Array(runs.seconds.length)
  let first = shareOf === undefined ? -Infinity : Infinity
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const outcome = valueAt(lanes.outcome, segment)
    const task = valueAt(lanes.task, segment)
    const share = outcome === outcomeNumbers.running ? 0 : (shareOf?.(task, outcome) ?? 0)
    if (share === 0) continue
    const seconds = share * valueAt(lanes.seconds, segment)
    free(state, freed, task, seconds)
    const start = valueAt(lanes.start, segment)
    first = Math.min(first, start + valueAt(lanes.seconds, segment) - seconds)
    // If a later session created the task again, only the seconds since then count.
    if (start < valueAt(state.times.created, task)) continue
    saved[task] = (saved[task] ?? 0) + seconds
  }
  const { longest } = new Chains(state, query, runs, { saved, isWithoutDelays })
  const earliestEnd = endOfOthers(state, query, runs, { first, saved })
  return { path: longest, freed, earliestEnd }
}

/** Ignores canceled tasks and blocks, whose durations depend on the caller or on other tasks. */
function endOfOthers(
  state: BoundsState,
  { counts, lanes }: BoundsQuery,
  { start: starts, seconds, delay }: TaskRuns,
  { first, saved }: { readonly first: number; readonly saved: Float64Array },
): number {
  const { dropped, droppedUntil } = lanes
  const start = dropped > 0 ? Math.max(state.firstTime, droppedUntil) : state.firstTime
  const from = activeTime(state.pauses, start)
  let latest = 0
  for (let task = 0; task < counts.index.names.size; task++) {
    const began = starts[task] ?? 0
    // Negated, so that NaN is also skipped.
    if (!(began < first) || saved[task] !== 0 || isBlock(state, task)) continue
    if ((stagesOf(counts, task) & stages.canceled) !== 0) continue
    const end = began + (seconds[task] ?? 0) + (delay[task] ?? 0)
    latest = Math.max(latest, activeTime(state.pauses, end) - from)
  }
  return latest
}

function free(
  { requests, requestOfTask }: BoundsState,
  freed: Record<string, Record<HeldResource, number>>,
  task: number,
  seconds: number,
): void {
  const request = requests[valueAt(requestOfTask, task)]
  const { cores, gpus, memoryMb, ranks, limit } = request ?? oneCore
  const none = { cores: 0, gpus: 0, memory: 0, workers: 0, processes: 0 }
  const sums = (freed[request?.backend ?? ''] ??= none)
  sums.cores += cores * ranks * seconds
  sums.gpus += gpus * ranks * seconds
  sums.memory += memoryMb * ranks * seconds
  if (limit !== null) sums[limit] += seconds
}
