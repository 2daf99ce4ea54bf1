/** Converts the states of a pass into the input of `classifySlots`. */

import { textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { isFailedOutcome, type LanesState, outcomeNumbers } from '../panels/lanes.ts'
import { forEachGap } from './attempt-gaps.ts'
import { activeTime, type BoundsQuery, type BoundsState, type Pause } from './bounds-state.ts'
import { classifySlots } from './classes/slot-classes.ts'
import { applyInOrder, TimeStream } from './classes/time-streams.ts'
import { createSlotSeconds, noSize, oneCore, sizeRange, waitKinds } from './slots.ts'
import type { SlotNode, SlotActivity, SlotSeconds, SlotUse } from './slots.ts'
import { readStageTimes } from './task-times.ts'

/** The resources that the tasks of one backend held. */
export interface BackendUse extends SlotUse {
  readonly backend: string
}

/**
 * The use of a backend whose nodes do not report how many tasks they run at a time, such as a model
 * server: times in which it was busy, and in which tasks waited.
 */
export interface UnsizedUse {
  readonly backend: string
  /** Whether the backend's tasks are prompts. */
  readonly isModel: boolean
  readonly busySeconds: number
  /** Seconds in which a task ran while another task was ready. */
  readonly waitedSeconds: number
  readonly maxConcurrent: number
  readonly workSeconds: number
}

export interface SlotsView {
  /**
   * The cores of all nodes, including absent nodes. If no nodes are known, the number of workers.
   */
  readonly slots: number
  /**
   * The minimum number of slots. It is smaller than `slots` if nodes changed their size during the
   * run or between its sessions.
   */
  readonly minSlots: number
  readonly slotSeconds: SlotSeconds
  readonly backends: readonly BackendUse[]
  readonly unsized: readonly UnsizedUse[]
  readonly failedSeconds: number
}

type TimeRange = Pick<SlotActivity, 'from' | 'to'>

/** Measures the use of slots. All times, including `range`, exclude the pauses of the run. */
export function measureSlots(state: BoundsState, query: BoundsQuery, range: TimeRange): SlotsView {
  const { requests } = state
  const hasNodes = state.nodes.some(hasCores)
  const workers = findWorkerNodes(query, range.from)
  const models = new Set(requests.flatMap((one) => (one.isPrompt ? [one.backend] : [])))
  const nodes = hasNodes
    ? state.nodes.map(withoutPauses(state))
    : workers.filter(({ backend }) => !models.has(backend))
  const runOn = (all: readonly SlotNode[], backend: string) => {
    const ownNodes = all.filter((node) => node.backend === backend)
    const used = usesOn(state, query, ownNodes)
    return { nodes: ownNodes, requests, ...used, ...waitsFor(state, query, backend), ...range }
  }
  const slotSeconds = createSlotSeconds()
  const backends = new Set(nodes.filter(hasCores).map(({ backend }) => backend))
  let failedSeconds = 0
  const uses = Array.from(backends, (backend) => {
    const run = runOn(nodes, backend)
    failedSeconds += run.failed
    return { backend, ...classifySlots(run, slotSeconds) }
  })
  const unsized = [...new Set(workers.map(({ backend }) => backend))]
    .filter((backend) => !backends.has(backend))
    .map((backend) => {
      const use = measureUnsizedUse(runOn(workers, backend))
      return { backend, isModel: models.has(backend), ...use }
    })
  const ranges = uses.map(({ sizes }) => sizeRange(sizes, 'cores'))
  const slots = ranges.reduce((sum, { max }) => sum + max, 0)
  const minSlots = ranges.reduce((sum, { min }) => sum + min, 0)
  return { slots, minSlots, slotSeconds, backends: uses, unsized, failedSeconds }
}

function measureUnsizedUse({
  uses,
  waits,
  from,
  to,
}: Pick<SlotActivity, 'uses' | 'waits' | 'from' | 'to'>): Omit<UnsizedUse, 'backend' | 'isModel'> {
  const sums = { busySeconds: 0, waitedSeconds: 0, maxConcurrent: 0, workSeconds: 0 }
  let [now, running, waiting] = [from, 0, 0]
  const streams = [
    new TimeStream(uses.to, () => running--),
    new TimeStream(waits.from, () => waiting++),
    new TimeStream(waits.to, () => waiting--),
    new TimeStream(uses.from, () => {
      running++
      sums.maxConcurrent = Math.max(sums.maxConcurrent, running)
    }),
  ]
  applyInOrder(streams, to, (time) => {
    const seconds = Math.max(0, time - now)
    if (running > 0) sums.busySeconds += seconds
    if (running > 0 && waiting > 0) sums.waitedSeconds += seconds
    sums.workSeconds += running * seconds
    now = Math.max(now, time)
  })
  return sums
}

const hasCores = ({ cores, earlier }: SlotNode): boolean =>
  cores > 0 || earlier.some((size) => size.cores > 0)

const withoutPauses =
  ({ pauses }: BoundsState) =>
  (node: SlotNode): SlotNode => ({
    ...node,
    changes: node.changes.map((time) => activeTime(pauses, time)),
    earlier: node.earlier.map((size) => ({ ...size, until: activeTime(pauses, size.until) })),
  })

/** Returns nodes for a record without known nodes. Every worker counts as a slot. */
function findWorkerNodes({ lanes }: BoundsQuery, from: number): SlotNode[] {
  const nodes = new Map<number, SlotNode>()
  for (let lane = 0; lane < lanes.lanes.size; lane++) {
    const number = valueAt(lanes.nodeOfLane, lane)
    const known = nodes.get(number)
    if (known !== undefined) known.cores++
    else {
      const [backend = '', nodeId = ''] = JSON.parse(textAt(lanes.nodes, number)) as string[]
      const size = { ...noSize, cores: 1 }
      nodes.set(number, { backend, nodeId, ...size, earlier: [], session: 0, changes: [from] })
    }
  }
  return [...nodes.values()]
}

function usesOn(state: BoundsState, { lanes }: BoundsQuery, nodes: readonly SlotNode[]) {
  const numbers = new Map(
    nodes.map(({ backend, nodeId }, at) => [JSON.stringify([backend, nodeId]), at]),
  )
  const nodeOfLane = Array.from({ length: lanes.lanes.size }, (_, lane) => {
    return numbers.get(textAt(lanes.nodes, valueAt(lanes.nodeOfLane, lane))) ?? -1
  })
  const size = lanes.size
  const uses = { ...createIntervals(size), node: new Uint32Array(size) }
  let [count, failed] = [0, 0]
  for (let segment = 0; segment < lanes.size; segment++) {
    const node = nodeOfLane[valueAt(lanes.lane, segment)] ?? -1
    if (node === -1) continue
    const start = activeTime(state.pauses, valueAt(lanes.start, segment))
    const seconds = valueAt(lanes.seconds, segment)
    const outcome = valueAt(lanes.outcome, segment)
    const request = valueAt(state.requestOfTask, valueAt(lanes.task, segment))
    uses.from[count] = start
    uses.to[count] = outcome === outcomeNumbers.running ? Infinity : start + seconds
    uses.request[count] = request
    uses.node[count++] = node
    if (isFailedOutcome(outcome)) failed += seconds * coresOf(state, request)
  }
  return { uses: cut(uses, count), failed }
}

/** The maximum number of waits kept per pause: more than any run has slots. */
const maxWaitsPerPause = 10_000

/**
 * Returns the times in which tasks of the backend were ready but did not run: from being ready to
 * the first start, and from the end of a retry delay to the next start.
 */
function waitsFor(
  state: BoundsState,
  { counts, lanes }: BoundsQuery,
  backend: string,
): Pick<SlotActivity, 'waits' | 'lastReady'> {
  const { pauses, attended, requests, requestOfTask, hasLimits } = state
  const query = { counts, lanes }
  const isOwn = Uint8Array.from(requests, (request) => (request.backend === backend ? 1 : 0))
  const tasks = counts.index.names.size
  const inPauses = attended.map(({ waiting }) => Math.min(waiting, maxWaitsPerPause))
  let gaps = 0
  forEachGap(state, query, () => gaps++)
  const waitsPerTask = hasLimits ? 2 : 1
  const size = waitsPerTask * tasks + gaps + inPauses.reduce((sum, waiting) => sum + waiting, 0)
  const waits = { ...createIntervals(size), kind: new Uint8Array(size) }
  const firsts = findFirstOnWorkers(state, lanes)
  let [count, lastReady] = [0, -Infinity]
  const add = (request: number, from: number, to: number, kind: number): void => {
    if (isOwn[request] !== 1 || to <= from) return
    const isStart = kind !== waitKinds.worker || isForWorker(state, request, from, to)
    waits.from[count] = activeTime(pauses, from)
    waits.to[count] = activeTime(pauses, to)
    waits.request[count] = request
    waits.kind[count++] = isStart ? kind : waitKinds.slot
  }
  for (let task = 0; task < tasks; task++) {
    const passed = stagesOf(counts, task)
    const request = valueAt(requestOfTask, task)
    if ((passed & stages.submitted) === 0 || isOwn[request] !== 1) continue
    const { ready, queued, started, ended } = readStageTimes(state.times, task, passed)
    if (ready === null) continue
    lastReady = Math.max(lastReady, ready)
    if (isInterrupted(counts, task) && started === null && ended === null) continue
    const to = started ?? ended ?? Infinity
    const released = hasLimits ? (queued ?? to) : ready
    add(request, ready, released, waitKinds.limit)
    add(request, released, to, firsts.tasks.has(task) ? waitKinds.worker : waitKinds.slot)
  }
  forEachGap(state, query, ({ task, from, delay, to, next }) => {
    const kind = firsts.segments.has(next) ? waitKinds.worker : waitKinds.slot
    add(valueAt(requestOfTask, task), from + delay, to ?? Infinity, kind)
  })
  for (const [at, { from, to, request }] of attended.entries()) {
    for (let one = inPauses[at] ?? 0; one > 0; one--) add(request, from, to, waitKinds.slot)
  }
  return { waits: cut(waits, count), lastReady: activeTime(pauses, lastReady) }
}

/**
 * Whether a wait can be for a worker. Closures and prompts need no worker, and no worker starts
 * while no session is running.
 */
const isForWorker = (state: BoundsState, request: number, from: number, to: number): boolean =>
  (state.requests[request]?.limit ?? null) !== null &&
  !state.attended.some((pause) => pause.from < to && pause.to > from)

/**
 * Returns the first segment of each worker per session, and the tasks that began with such a
 * segment.
 */
function findFirstOnWorkers({ pauses }: BoundsState, lanes: LanesState) {
  const [segments, tasks] = [new Set<number>(), new Set<number>()]
  const sessionOfLane = new Int32Array(lanes.lanes.size).fill(-1)
  for (let segment = 0; segment < lanes.size; segment++) {
    const lane = valueAt(lanes.lane, segment)
    const session = pauses.length === 0 ? 0 : sessionAt(pauses, valueAt(lanes.start, segment))
    if (sessionOfLane[lane] === session) continue
    sessionOfLane[lane] = session
    segments.add(segment)
    if (valueAt(lanes.attempt, segment) <= 1) tasks.add(valueAt(lanes.task, segment))
  }
  return { segments, tasks }
}

const sessionAt = (pauses: readonly Pause[], time: number): number =>
  pauses.reduce((count, { to }) => count + (to <= time ? 1 : 0), 0)

function coresOf({ requests }: BoundsState, number: number): number {
  const { cores, ranks } = requests[number] ?? oneCore
  return cores * ranks
}

const createIntervals = (size: number) => ({
  from: new Float64Array(size),
  to: new Float64Array(size),
  request: new Uint16Array(size),
})

const cut = <
  T extends Readonly<Record<string, Float64Array | Uint8Array | Uint16Array | Uint32Array>>,
>(
  columns: T,
  count: number,
): T =>
  Object.fromEntries(
    Object.entries(columns).map(([key, column]) => [key, column.subarray(0, count)]),
  ) as T
