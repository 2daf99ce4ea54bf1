/** The obstacles of a task in its backend's queue: tasks that started earlier, and its slot. */

import type { RunPass } from './all-panels.ts'
import { oneCore, type SlotRequest } from './bounds/slots.ts'
import type { TaskStory } from './bounds/task-times.ts'
import { textAt, valueAt } from './columns.ts'
import { outcomeNumbers, segmentAt, type SegmentView } from './panels/lanes.ts'
import { uidOf } from './task-index.ts'

/** The resources that one task holds, on one or several nodes. */
export interface HeldByTask {
  readonly cores: number
  readonly gpus: number
  readonly memoryMb: number
}

export interface BegunBefore {
  /** The number of attempts of other tasks. */
  readonly count: number
  /** The number of attempts that requested more, and the last of them, which delayed the others. */
  readonly larger: number
  readonly lastLarger:
    | ({ readonly uid: string; readonly freedBy: FreeingAttempt | null } & HeldByTask)
    | null
  /** The resources that the task requested, if more than one core. */
  readonly asked: HeldByTask | null
  /** The last attempt that ended on the same node before the task started; `null` if none did. */
  readonly freedBy: FreeingAttempt | null
}

export interface FreeingAttempt {
  readonly uid: string
  /** Whether only an attempt ended, and the task was retried later. */
  readonly isRetried: boolean
}

/** Backends keep the queue order: a task that fits no free slot delays the tasks behind it. */
export function begunBefore(
  pass: RunPass,
  task: number,
  { queued, submitted, started, ended }: TaskStory,
): BegunBefore {
  const { counts, states } = pass
  const { bounds, lanes } = states
  const [from, until] = [queued ?? submitted ?? Infinity, started ?? ended ?? -Infinity]
  const requestOf = (one: number): SlotRequest | undefined =>
    bounds.requests[valueAt(bounds.requestOfTask, one)]
  const own = requestOf(task)
  const held = heldBy(own)
  const isLarger = bounds.requests.map((request) => isMore(heldBy(request), held))
  let [count, larger, last, first] = [0, 0, -1, -1]
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const start = valueAt(lanes.start, segment)
    if (start < from || start >= until) continue
    const other = valueAt(lanes.task, segment)
    if (other === task || requestOf(other)?.backend !== own?.backend) continue
    count++
    if (isLarger[valueAt(bounds.requestOfTask, other)] !== true) continue
    larger++
    if (last === -1 || start >= valueAt(lanes.start, last)) last = segment
  }
  for (let segment = lanes.first; segment < lanes.size && first === -1; segment++) {
    const isOwn = valueAt(lanes.task, segment) === task
    if (isOwn && valueAt(lanes.start, segment) >= from) first = segment
  }
  const freedBy = (segment: number): FreeingAttempt | null => {
    const before = segment === -1 ? -1 : lastEnded(pass, segment, from)
    if (before === -1) return null
    const isRetried = valueAt(lanes.outcome, before) === retried
    return { uid: uidOf(counts.index, valueAt(lanes.task, before)), isRetried }
  }
  const lastTask = valueAt(lanes.task, last)
  return {
    count,
    larger,
    lastLarger:
      last === -1
        ? null
        : {
            uid: uidOf(counts.index, lastTask),
            ...heldBy(requestOf(lastTask)),
            freedBy: freedBy(last),
          },
    asked: isMore(held, heldBy(undefined)) ? held : null,
    freedBy: freedBy(first),
  }
}

/** End times are computed from 32-bit durations, so the last digits differ. */
const precision = 1e-3

/** The last segment that ended on the same node between `from` and this start; -1 if none did. */
function lastEnded({ states: { lanes } }: RunPass, segment: number, from: number): number {
  const nodeOf = (one: number): number => valueAt(lanes.nodeOfLane, valueAt(lanes.lane, one))
  const [node, until] = [nodeOf(segment), valueAt(lanes.start, segment) + precision]
  const task = valueAt(lanes.task, segment)
  let [last, latest] = [-1, from]
  for (let one = lanes.first; one < lanes.size; one++) {
    const end = endOf(lanes, one)
    if (end <= latest || end > until || nodeOf(one) !== node) continue
    if (valueAt(lanes.task, one) === task) continue
    ;[last, latest] = [one, end]
  }
  return last
}

const { running, retried, repeated } = outcomeNumbers
const notEnded: ReadonlySet<number> = new Set([running, repeated])

function endOf({ start, seconds, outcome }: Lanes, segment: number): number {
  if (notEnded.has(valueAt(outcome, segment))) return Infinity
  return valueAt(start, segment) + valueAt(seconds, segment)
}

type Lanes = RunPass['states']['lanes']

/**
 * The time at which an attempt could start: its slot was free, its node had the resources, and no
 * larger task ahead waited for room. `null` if unknown.
 */
export function slotFreeBefore(pass: RunPass, attempt: SegmentView | undefined): number | null {
  if (attempt === undefined) return null
  const larger = lastLargerBefore(pass, attempt)
  const room = larger === null ? null : roomSince(pass, larger)
  const worker = workerFreeBefore(pass, attempt)
  // A larger task that waited only for a worker does not delay a task that has another worker.
  const isHeldUp = larger !== null && room !== null && room > (worker ?? -Infinity)
  const times = [worker, roomSince(pass, attempt), isHeldUp ? larger.start : null]
  const latest = Math.max(...times.map((time) => time ?? -Infinity))
  return latest === -Infinity ? null : latest
}

/** Among the tasks ahead that request more, the attempt that started last. */
function lastLargerBefore(
  { states: { lanes, bounds } }: RunPass,
  attempt: SegmentView,
): SegmentView | null {
  const { requests, requestOfTask, priorityOfTask } = bounds
  const own = requests[valueAt(requestOfTask, attempt.task)]
  const held = heldBy(own)
  let last = -1
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    if (task >= attempt.task || valueAt(lanes.start, segment) > attempt.start) continue
    if (valueAt(priorityOfTask, task) < valueAt(priorityOfTask, attempt.task)) continue
    const other = requests[valueAt(requestOfTask, task)]
    if (other?.backend !== own?.backend || !isMore(heldBy(other), held)) continue
    if (last === -1 || valueAt(lanes.start, segment) > valueAt(lanes.start, last)) last = segment
  }
  return last === -1 ? null : segmentAt(lanes, last)
}

/**
 * The time since which the node had enough cores, GPUs and memory: the end of the last attempt that
 * left too little. `null` if there was always room, or if the size of the node is unknown.
 */
function roomSince(pass: RunPass, attempt: SegmentView): number | null {
  const { lanes, bounds } = pass.states
  const node = valueAt(lanes.nodeOfLane, attempt.lane)
  const room = sizeAt(pass, node, attempt.start)
  const heldByRequest = bounds.requests.map((request) => heldBy(request))
  const heldOf = (task: number): HeldByTask =>
    heldByRequest[valueAt(bounds.requestOfTask, task)] ?? heldBy(undefined)
  const asked = heldOf(attempt.task)
  // A request larger than the node has its ranks on several nodes.
  if (room === null || isMore(asked, room)) return null
  const used = { cores: asked.cores, gpus: asked.gpus, memoryMb: asked.memoryMb }
  const use = (task: number, change: 1 | -1): void => {
    const { cores, gpus, memoryMb } = heldOf(task)
    used.cores += change * cores
    used.gpus += change * gpus
    used.memoryMb += change * memoryMb
  }
  const starts: number[] = []
  const ends: number[] = []
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const [task, start] = [valueAt(lanes.task, segment), valueAt(lanes.start, segment)]
    if (task === attempt.task || start > attempt.start) continue
    if (valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)) !== node) continue
    if (valueAt(lanes.outcome, segment) === repeated) continue
    starts.push(segment)
    if (endOf(lanes, segment) - precision <= attempt.start) ends.push(segment)
    else use(task, 1)
  }
  const startOf = (segment: number): number => valueAt(lanes.start, segment)
  const overAt = (segment: number): number =>
    Math.max(startOf(segment), endOf(lanes, segment) - precision)
  starts.sort((a, b) => startOf(a) - startOf(b))
  ends.sort((a, b) => overAt(a) - overAt(b))
  // Goes back in time. At equal times, starts are undone first: they used freed resources.
  for (let end = ends.pop(); end !== undefined; end = ends.pop()) {
    for (let start = starts.at(-1); start !== undefined && startOf(start) >= overAt(end);) {
      use(valueAt(lanes.task, start), -1)
      starts.pop()
      start = starts.at(-1)
    }
    use(valueAt(lanes.task, end), 1)
    if (isMore(used, room)) return endOf(lanes, end)
  }
  return null
}

/** The size of a node at a time; `null` if unknown. */
function sizeAt({ states }: RunPass, node: number, time: number): HeldByTask | null {
  const [backend, nodeId] = JSON.parse(textAt(states.lanes.nodes, node)) as string[]
  const found = states.bounds.nodes.find((one) => one.backend === backend && one.nodeId === nodeId)
  if (found === undefined) return null
  const { cores, gpus, memoryMb } = found.earlier.find(({ until }) => time < until) ?? found
  return { cores, gpus, memoryMb: memoryMb === 0 ? Infinity : memoryMb }
}

/**
 * The time at which the slot of an attempt became free: the end of its worker's previous attempt. A
 * new worker takes over the slot of another worker: the latest slot that became free before a task
 * behind it started. `null` if unknown.
 */
function workerFreeBefore(pass: RunPass, attempt: SegmentView): number | null {
  const { lanes } = pass.states
  const latestOf = (lane: number, until: number, task = -1): number => {
    let latest = -Infinity
    for (let segment = lanes.first; segment < lanes.size; segment++) {
      if (valueAt(lanes.lane, segment) !== lane || valueAt(lanes.task, segment) === task) continue
      const end = endOf(lanes, segment)
      if (end > latest && end <= until) latest = end
    }
    return latest
  }
  const own = latestOf(attempt.lane, attempt.start + precision, attempt.task)
  if (own !== -Infinity) return own
  const next = firstBehind(pass, attempt)
  const until =
    next === -1
      ? attempt.start + precision
      : latestOf(valueAt(lanes.lane, next), valueAt(lanes.start, next) + precision) - precision
  const node = valueAt(lanes.nodeOfLane, attempt.lane)
  let latest = -Infinity
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)) !== node) continue
    const end = endOf(lanes, segment)
    if (end > latest && end <= until) latest = end
  }
  return latest === -Infinity ? null : latest
}

/** The first segment that started before the attempt although it was queued later; or -1. */
function firstBehind({ states: { lanes, bounds } }: RunPass, attempt: SegmentView): number {
  const { requests, requestOfTask, priorityOfTask } = bounds
  const own = requests[valueAt(requestOfTask, attempt.task)]
  const priority = valueAt(priorityOfTask, attempt.task)
  let first = -1
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    const start = valueAt(lanes.start, segment)
    // Tasks are numbered in order of creation.
    if (task <= attempt.task || start >= attempt.start) continue
    const other = requests[valueAt(requestOfTask, task)]
    if (other?.backend !== own?.backend || other?.limit !== own?.limit) continue
    if (valueAt(priorityOfTask, task) > priority) continue
    if (first === -1 || start < valueAt(lanes.start, first)) first = segment
  }
  return first
}

function heldBy(request: SlotRequest | undefined): HeldByTask {
  const { cores, gpus, memoryMb, ranks } = request ?? oneCore
  return { cores: cores * ranks, gpus: gpus * ranks, memoryMb: memoryMb * ranks }
}

const isMore = (one: HeldByTask, other: HeldByTask): boolean =>
  one.cores > other.cores || one.gpus > other.gpus || one.memoryMb > other.memoryMb
