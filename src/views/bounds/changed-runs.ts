/** Hypothetical runs, each with one change: the least time that their tasks would need. */

import { valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { stagesOf } from '../panels/counts.ts'
import { failedOutcomes, outcomeNumbers } from '../panels/lanes.ts'
import { type AttemptGaps, delayOf, gapOf } from './attempt-gaps.ts'
import { activeTime, type BoundsQuery, type BoundsState } from './bounds-state.ts'
import { type Chains, isBlock, type TaskRun } from './chains.ts'
import { type HeldResource, oneCore } from './slots.ts'

export interface ChangedRun {
  /** Seconds of the longest chain of the changed run. */
  readonly path: number
  /** By backend, how much less its tasks hold: units times seconds. */
  readonly freed: Readonly<Record<string, Readonly<Record<HeldResource, number>>>>
  /**
   * A lower bound: nothing differs before the first change, so the tasks that ran by then end as
   * they did. Seconds from the start of the run to the last of those ends.
   */
  readonly earliestEnd: number
}

/** What a changed run is made from. */
export interface ChangeParts {
  readonly state: BoundsState
  readonly query: BoundsQuery
  readonly chains: Chains
  readonly gaps: AttemptGaps | null
  readonly runOf: (task: number) => TaskRun | null
  /** Start of the run, without pauses. */
  readonly from: number
}

/** A task that takes `median` instead of `seconds` in the changed run. */
interface Shorter {
  readonly task: number
  readonly seconds: number
  readonly median: number
  readonly isRetried: boolean
}

/** The run in which the tasks of `late` take as long as the median of their name. */
export function withoutStragglers(parts: ChangeParts, late: readonly Shorter[]): ChangedRun {
  const { chains, runOf } = parts
  const excess = new Map(late.map(({ task, seconds, median }) => [task, seconds - median]))
  const freed = new FreedResources(parts.state)
  let first = Infinity
  for (const { task, seconds, median, isRetried } of late) {
    freed.add(task, seconds - median)
    first = Math.min(first, (runOf(task)?.start ?? 0) + (isRetried ? 0 : median))
  }
  return {
    path: chains.maxSecondsWith({ secondsOf: (task, own) => own - (excess.get(task) ?? 0) }),
    freed: freed.byBackend,
    earliestEnd: endOfOthers(parts, first, (task) => excess.has(task)),
  }
}

export function withoutDelays({ chains, gaps }: ChangeParts): ChangedRun {
  const secondsOf = (task: number, own: number): number => own - delayOf(gaps, task)
  const path = chains.maxSecondsWith({ secondsOf, isWithoutDelays: true })
  return { path, freed: {}, earliestEnd: 0 }
}

/** The run in which the named tasks take half as long. */
export function withHalved(parts: ChangeParts, isNamed: (task: number) => boolean): ChangedRun {
  const { state, query, chains, gaps, runOf } = parts
  const { lanes, counts } = query
  const freed = new FreedResources(state)
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    const isRunning = valueAt(lanes.outcome, segment) === outcomeNumbers.running
    if (!isNamed(task) || isRunning) continue
    freed.add(task, valueAt(lanes.seconds, segment) / 2)
  }
  let first = Infinity
  for (let task = 0; task < counts.index.names.size; task++) {
    const run = isNamed(task) ? runOf(task) : null
    if (run === null) continue
    first = Math.min(first, run.start + (gapOf(gaps, task) > 0 ? 0 : run.seconds / 2))
  }
  return {
    path: chains.maxSecondsWith({
      secondsOf: (task, own) => (isNamed(task) ? (own + delayOf(gaps, task)) / 2 : own),
    }),
    freed: freed.byBackend,
    earliestEnd: endOfOthers(parts, first, isNamed),
  }
}

/** The run in which no attempt fails or is lost; `null` if none did. */
export function withoutFailures(parts: ChangeParts): ChangedRun | null {
  const { state, query, chains, gaps } = parts
  const { lanes } = query
  const freed = new FreedResources(state)
  /** Seconds of failed attempts by task, as far as the task's own seconds include them. */
  const failed = new Map<number, number>()
  let first = Infinity
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (!failedOutcomes.has(valueAt(lanes.outcome, segment))) continue
    const task = valueAt(lanes.task, segment)
    if (isBlock(state, task)) continue
    const [start, seconds] = [valueAt(lanes.start, segment), valueAt(lanes.seconds, segment)]
    freed.add(task, seconds)
    // A task that a later session created again has only the seconds since then.
    const isOwn = start >= valueAt(state.times.created, task)
    failed.set(task, (failed.get(task) ?? 0) + (isOwn ? seconds : 0))
    first = Math.min(first, start)
  }
  if (failed.size === 0) return null
  const secondsOf = (task: number, own: number): number => {
    const lost = failed.get(task)
    return lost === undefined ? own : Math.max(0, own - lost - delayOf(gaps, task))
  }
  return {
    path: chains.maxSecondsWith({ secondsOf, isWithoutDelays: true }),
    freed: freed.byBackend,
    earliestEnd: endOfOthers(parts, first, (task) => failed.has(task)),
  }
}

/**
 * The latest end of unchanged tasks that started before `first`. Not of canceled tasks and blocks,
 * whose durations depend on the caller or on other tasks.
 */
function endOfOthers(
  { state, query: { counts }, runOf, from }: ChangeParts,
  first: number,
  isChanged: (task: number) => boolean,
): number {
  let latest = 0
  for (let task = 0; task < counts.index.names.size; task++) {
    const run = runOf(task)
    if (run === null || run.start >= first || isChanged(task) || isBlock(state, task)) continue
    if ((stagesOf(counts, task) & stages.canceled) !== 0) continue
    const end = run.start + run.seconds + run.delay
    latest = Math.max(latest, activeTime(state.pauses, end) - from)
  }
  return latest
}

class FreedResources {
  readonly byBackend: Record<string, Record<HeldResource, number>> = {}
  readonly #state: BoundsState

  constructor(state: BoundsState) {
    this.#state = state
  }

  add(task: number, seconds: number): void {
    const { requests, requestOfTask } = this.#state
    const request = requests[valueAt(requestOfTask, task)]
    const { cores, gpus, memoryMb, ranks, limit } = request ?? oneCore
    const sums = (this.byBackend[request?.backend ?? ''] ??= {
      cores: 0,
      gpus: 0,
      memory: 0,
      workers: 0,
      processes: 0,
    })
    sums.cores += cores * ranks * seconds
    sums.gpus += gpus * ranks * seconds
    sums.memory += memoryMb * ranks * seconds
    if (limit !== null) sums[limit] += seconds
  }
}
