/** Hypothetical runs with one change each, and the minimum time that their tasks would need. */

import { valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { isFailedOutcome, outcomeNumbers } from '../panels/lanes.ts'
import { activeTime, type BoundsQuery, type BoundsState } from './bounds-state.ts'
import { Chains, isBlock, type TaskRuns } from './chains.ts'
import type { PathTask, Straggler } from './critical-path.ts'
import { type Amounts, heldResources, toTaskAmounts } from './slots.ts'
import type { SlotsView } from './slot-run.ts'

export type RunChange =
  | 'no delays'
  | 'no stragglers'
  | 'no failures'
  /** All tasks of the name with the largest part of the critical path take half as long. */
  | 'path name halved'
  /**
   * All tasks of the name with the most slot-seconds take half as long. Only the backend with the
   * longest waits is considered.
   */
  | 'slot name halved'

export interface ChangedRun {
  readonly change: RunChange
  /** One task of the halved name; -1 for other changes. */
  readonly task: number
  /** The seconds of the longest chain of the changed run. */
  readonly path: number
  /** The resources that the tasks of each backend no longer use, in units times seconds. */
  readonly freed: Readonly<Record<string, Amounts>>
  /** The seconds until the end of the last task that started before the first change. */
  readonly earliestEnd: number
}

interface ChangeInput {
  readonly runs: TaskRuns
  readonly path: readonly PathTask[]
  readonly delaySeconds: number
  readonly stragglers: readonly Straggler[]
  readonly slots: SlotsView
}

/** Returns the changed runs. Omits changes that would have no effect. */
export function findChangedRuns(
  state: BoundsState,
  query: BoundsQuery,
  { runs, path, delaySeconds, stragglers, slots }: ChangeInput,
): ChangedRun[] {
  const { nameOfTask } = query.names
  const straggling = stragglers.filter(({ isOnPath }) => isOnPath)
  const excess = new Map(
    straggling.map(({ task, seconds, median }) => [task, 1 - median / seconds]),
  )
  const change = (kind: RunChange, edit: RunAdjustment, task = -1): ChangedRun => {
    return { change: kind, task, ...editRun(state, query, runs, edit) }
  }
  const halve = (kind: RunChange, { name, task }: LargestName): ChangedRun[] => {
    const shareOf = (one: number): number => (valueAt(nameOfTask, one) === name ? 1 / 2 : 0)
    return name === -1 ? [] : [change(kind, { shareOf }, task)]
  }
  const failedShare = (task: number, outcome: number): number =>
    isFailedOutcome(outcome) && !isBlock(state, task) ? 1 : 0
  const inPath = findLargestName(query, path)
  const inSlots = findLargestName(query, listSlotTimes(state, query, slots))
  return [
    ...(delaySeconds === 0 ? [] : [change('no delays', { hasDelays: false })]),
    ...(straggling.length === 0
      ? []
      : [change('no stragglers', { shareOf: (task) => excess.get(task) ?? 0 })]),
    ...(slots.failedSeconds === 0
      ? []
      : [change('no failures', { shareOf: failedShare, hasDelays: false })]),
    ...halve('path name halved', inPath),
    ...(inSlots.name === inPath.name ? [] : halve('slot name halved', inSlots)),
  ]
}

interface RunAdjustment {
  /** Returns the share by which an attempt becomes shorter. Default 0. */
  readonly shareOf?: (task: number, outcome: number) => number
  readonly hasDelays?: boolean
}

function editRun(
  state: BoundsState,
  query: BoundsQuery,
  runs: TaskRuns,
  { shareOf, hasDelays = true }: RunAdjustment,
): Omit<ChangedRun, 'change' | 'task'> {
  const { lanes } = query
  const { requests, requestOfTask, times } = state
  const freedSeconds = new Float64Array(requests.length)
  const savedSeconds = new Float64Array(runs.seconds.length)
  let firstChange = shareOf === undefined ? -Infinity : Infinity
  for (let segment = 0; segment < lanes.size; segment++) {
    const outcome = valueAt(lanes.outcome, segment)
    const task = valueAt(lanes.task, segment)
    const share = outcome === outcomeNumbers.running ? 0 : (shareOf?.(task, outcome) ?? 0)
    if (share === 0) continue
    const start = valueAt(lanes.start, segment)
    const seconds = share * valueAt(lanes.seconds, segment)
    firstChange = Math.min(firstChange, start + valueAt(lanes.seconds, segment) - seconds)
    const request = valueAt(requestOfTask, task)
    freedSeconds[request] = (freedSeconds[request] ?? 0) + seconds
    // If a later session created the task again, only seconds since then count.
    if (start < valueAt(times.created, task)) continue
    savedSeconds[task] = (savedSeconds[task] ?? 0) + seconds
  }
  const freed: Record<string, Record<keyof Amounts, number>> = {}
  for (const [at, request] of requests.entries()) {
    const amounts = toTaskAmounts(request)
    const sums = (freed[request.backend] ??= { ...noAmounts })
    for (const one of heldResources) sums[one] += amounts[one] * (freedSeconds[at] ?? 0)
  }
  const { longest } = new Chains(state, query, runs, { saved: savedSeconds, hasDelays })
  const isUnchanged = (task: number): boolean => savedSeconds[task] === 0
  const earliestEnd = findEarliestEnd(state, query, runs, firstChange, isUnchanged)
  return { path: longest, freed, earliestEnd }
}

/**
 * Returns the seconds until the last unchanged task that started before the first change has ended.
 * Ignores canceled tasks and blocks, whose durations depend on the caller or on other tasks.
 */
function findEarliestEnd(
  state: BoundsState,
  { counts }: BoundsQuery,
  { start: starts, seconds, delay }: TaskRuns,
  firstChange: number,
  isUnchanged: (task: number) => boolean,
): number {
  let latest = -Infinity
  for (let task = 0; task < starts.length; task++) {
    const began = starts[task] ?? 0
    // The comparison is negated, so that the NaN of a task that did not run is skipped too.
    if (!(began < firstChange) || !isUnchanged(task) || isBlock(state, task)) continue
    if ((stagesOf(counts, task) & stages.canceled) !== 0) continue
    latest = Math.max(latest, began + (seconds[task] ?? 0) + (delay[task] ?? 0))
  }
  return Math.max(0, activeTime(state.pauses, latest) - activeTime(state.pauses, state.firstTime))
}

const noAmounts: Amounts = { cores: 0, gpus: 0, memory: 0, workers: 0, processes: 0 }

interface TaskSeconds {
  readonly task: number
  readonly seconds: number
}

/** The number of a name, and one of its tasks. Both are -1 if there is no name. */
interface LargestName {
  readonly name: number
  readonly task: number
}

function findLargestName({ names }: BoundsQuery, times: Iterable<TaskSeconds>): LargestName {
  const sums = new Map<number, LargestName & TaskSeconds>()
  for (const { task, seconds } of times) {
    const name = valueAt(names.nameOfTask, task)
    sums.set(name, { name, task, seconds: (sums.get(name)?.seconds ?? 0) + seconds })
  }
  const [largest] = [...sums.values()].toSorted((a, b) => b.seconds - a.seconds)
  return largest ?? { name: -1, task: -1 }
}

/** Lists slot-seconds on the backend whose tasks waited longest for slots, if any waited. */
function* listSlotTimes(
  { requests, requestOfTask }: BoundsState,
  { lanes }: BoundsQuery,
  { backends }: SlotsView,
): Generator<TaskSeconds> {
  const [fullest] = backends.toSorted((a, b) => b.fullSeconds - a.fullSeconds)
  if (fullest === undefined || fullest.fullSeconds === 0) return
  for (let segment = 0; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    const request = requests[valueAt(requestOfTask, task)]
    if (request?.backend !== fullest.backend) continue
    yield { task, seconds: request.cores * request.ranks * valueAt(lanes.seconds, segment) }
  }
}
