/**
 * Explains why a task waited in its queue: which tasks started earlier, and when a slot was free.
 */

import type { RunPass } from './all-panels.ts'
import { oneCore, type SlotRequest } from './bounds/slots.ts'
import type { StageTimes } from './bounds/task-times.ts'
import { valueAt } from './columns.ts'
import { outcomeNumbers, type SegmentView } from './panels/lanes.ts'
import { uidOf } from './task-index.ts'

/** The resources that one task holds, on one or several nodes. */
export interface HeldByTask {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
}

export interface EarlierStarts {
  /** The number of attempts of other tasks that started while this task waited. */
  readonly count: number
  /** The number of those attempts that requested more resources than this task. */
  readonly larger: number
  /** The last of these larger attempts. It delayed the tasks behind it in the queue. */
  readonly lastLarger:
    | ({ readonly uid: string; readonly freedBy: FreeingAttempt | null } & HeldByTask)
    | null
  /** The resources that the task requested; `null` if it requested only one core. */
  readonly asked: HeldByTask | null
  /** The last attempt that ended on the same node before the task started, or `null`. */
  readonly freedBy: FreeingAttempt | null
}

export interface FreeingAttempt {
  readonly uid: string
  /** Whether the task was retried later, so that only an attempt of it ended. */
  readonly isRetried: boolean
  readonly end: number
}

/**
 * Finds the attempts that started while the task waited. Backends keep the queue order, so a task
 * that fits into no free slot delays the tasks behind it.
 */
export function earlierStarts(
  pass: RunPass,
  task: number,
  { queued, submitted, started, ended }: StageTimes,
): EarlierStarts {
  const { counts, states } = pass
  const { bounds, lanes } = states
  const [from, until] = [queued ?? submitted ?? Infinity, started ?? ended ?? -Infinity]
  const requestOf = (one: number): SlotRequest | undefined =>
    bounds.requests[valueAt(bounds.requestOfTask, one)]
  const ownRequest = requestOf(task)
  const ownAmounts = toHeldAmounts(ownRequest)
  const isLarger = bounds.requests.map((request) => exceedsAny(toHeldAmounts(request), ownAmounts))
  let [count, larger, last, first] = [0, 0, -1, -1]
  for (let segment = 0; segment < lanes.size; segment++) {
    const start = valueAt(lanes.start, segment)
    const other = valueAt(lanes.task, segment)
    if (first === -1 && other === task && start >= from) first = segment
    if (start < from || start >= until || other === task) continue
    if (requestOf(other)?.backend !== ownRequest?.backend) continue
    count++
    if (isLarger[valueAt(bounds.requestOfTask, other)] !== true) continue
    larger++
    if (last === -1 || start >= valueAt(lanes.start, last)) last = segment
  }
  const freedBy = (segment: number): FreeingAttempt | null => {
    const before = segment === -1 ? -1 : lastEndOnNode(lanes, segment, from)
    if (before === -1) return null
    const isRetried = valueAt(lanes.outcome, before) === outcomeNumbers.retried
    const uid = uidOf(counts.index, valueAt(lanes.task, before))
    return { uid, isRetried, end: endOf(lanes, before) }
  }
  const lastTask = valueAt(lanes.task, last)
  const amounts = toHeldAmounts(requestOf(lastTask))
  return {
    count,
    larger,
    lastLarger:
      last === -1
        ? null
        : { uid: uidOf(counts.index, lastTask), ...amounts, freedBy: freedBy(last) },
    asked: exceedsAny(ownAmounts, toHeldAmounts(undefined)) ? ownAmounts : null,
    freedBy: freedBy(first),
  }
}

/** The tolerance for comparing times, because end times are computed from 32-bit durations. */
const precision = 1e-3

type Lanes = RunPass['states']['lanes']

const nodeOf = ({ nodeOfLane, lane }: Lanes, segment: number): number =>
  valueAt(nodeOfLane, valueAt(lane, segment))

function endOf({ start, seconds, outcome }: Lanes, segment: number): number {
  const number = valueAt(outcome, segment)
  const hasEnded = number !== outcomeNumbers.running && number !== outcomeNumbers.repeated
  return hasEnded ? valueAt(start, segment) + valueAt(seconds, segment) : Infinity
}

/** Returns the segment that ended last, but not after `until`; -1 if there is none. */
function lastEnded(lanes: Lanes, until: number, isMeant: (segment: number) => boolean): number {
  let [last, latest] = [-1, -Infinity]
  for (let segment = 0; segment < lanes.size; segment++) {
    const end = endOf(lanes, segment)
    if (end > latest && end <= until && isMeant(segment)) [last, latest] = [segment, end]
  }
  return last
}

/** Returns the segment of another task that ended last on the same node, after `from`; or -1. */
function lastEndOnNode(lanes: Lanes, segment: number, from: number): number {
  const [node, task] = [nodeOf(lanes, segment), valueAt(lanes.task, segment)]
  return lastEnded(lanes, valueAt(lanes.start, segment) + precision, (one) => {
    const isOther = valueAt(lanes.task, one) !== task
    return isOther && endOf(lanes, one) > from && nodeOf(lanes, one) === node
  })
}

/**
 * Returns the time at which a task could start. A task that asked for several cores, or was behind
 * such a task, waited for an attempt on its node to end. Any other task waited for its worker.
 * Returns `null` if the time is unknown.
 */
export function findSlotFreeTime(
  pass: RunPass,
  attempt: SegmentView | undefined,
  { asked, larger, freedBy }: EarlierStarts,
): number | null {
  if (attempt === undefined) return null
  const hasWaitedForResources = freedBy !== null && (asked !== null || larger > 0)
  return hasWaitedForResources ? freedBy.end : workerFreeTime(pass, attempt)
}

/**
 * Returns the time at which the slot of an attempt became free: the end of the previous attempt on
 * its worker. For a new worker, which has no previous attempt, it is the end of the attempt whose
 * slot went to the first later task that started before this one. If there is no such task, it is
 * the last end of an attempt on the node.
 */
function workerFreeTime(pass: RunPass, { lane, start, task }: SegmentView): number | null {
  const { lanes } = pass.states
  const endBefore = (until: number, isMeant: (segment: number) => boolean): number | null => {
    const last = lastEnded(lanes, until, isMeant)
    return last === -1 ? null : endOf(lanes, last)
  }
  const isOn = (own: number) => (segment: number) => valueAt(lanes.lane, segment) === own
  const own = endBefore(start + precision, (segment) => {
    return isOn(lane)(segment) && valueAt(lanes.task, segment) !== task
  })
  if (own !== null) return own
  const node = valueAt(lanes.nodeOfLane, lane)
  const next = firstBehind(pass, task, start)
  return next === -1
    ? endBefore(start + precision, (segment) => nodeOf(lanes, segment) === node)
    : endBefore(valueAt(lanes.start, next) + precision, isOn(valueAt(lanes.lane, next)))
}

/**
 * Finds the first segment of the tasks behind this one in the same queue. Ignores segments that did
 * not start before `started`; -1 if there is none.
 */
function firstBehind(
  { states: { lanes, bounds } }: RunPass,
  task: number,
  started: number,
): number {
  const { requests, requestOfTask, priorityOfTask } = bounds
  const own = requests[valueAt(requestOfTask, task)]
  let first = -1
  for (let segment = 0; segment < lanes.size; segment++) {
    const other = valueAt(lanes.task, segment)
    const start = valueAt(lanes.start, segment)
    // Later tasks have higher numbers, because tasks are numbered in order of creation.
    if (other <= task || start >= started) continue
    const request = requests[valueAt(requestOfTask, other)]
    if (request?.backend !== own?.backend || request?.limit !== own?.limit) continue
    if (valueAt(priorityOfTask, other) > valueAt(priorityOfTask, task)) continue
    if (first === -1 || start < valueAt(lanes.start, first)) first = segment
  }
  return first
}

function toHeldAmounts(request: SlotRequest | undefined): HeldByTask {
  const { cores, gpus, memoryMb, ranks } = request ?? oneCore
  return { cores: cores * ranks, gpus: gpus * ranks, memoryMb: memoryMb * ranks }
}

const exceedsAny = (one: HeldByTask, other: HeldByTask): boolean =>
  one.cores > other.cores || one.gpus > other.gpus || one.memoryMb > other.memoryMb
