/** Converts the states of a pass into the input of `classifySlots`. */

import { textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { isInterrupted, stagesOf } from '../panels/counts.ts'
import { mayBeRetried } from './attempt-gaps.ts'
import { activeTime, type BoundsQuery, type BoundsState, type Pause } from './bounds-state.ts'
import { failedOutcomes, type LanesState, outcomeNumbers } from '../panels/lanes.ts'
import { classifySlots } from './classes/slot-classes.ts'
import { createSlotSeconds, type Intervals, noSize, oneCore, sizeRange } from './slots.ts'
import type { SlotNode, SlotRun, SlotSeconds, SlotUse } from './slots.ts'
import { storyOf } from './task-times.ts'
import { type TimeRange, type UnsizedUse, useOf } from './unsized-use.ts'

/** The resources held by the tasks of one backend. */
export interface BackendUse extends SlotUse {
  readonly backend: string
  readonly wide: WideTasks
}

/** The tasks that request more than one core, and the largest number of cores. */
export interface WideTasks {
  readonly count: number
  readonly max: number
}

interface SlotsView {
  readonly slots: number
  readonly fewestSlots: number
  readonly slotSeconds: SlotSeconds
  readonly backends: readonly BackendUse[]
  /** Backends whose nodes do not report how many tasks they run at a time, such as models. */
  readonly unsized: readonly UnsizedUse[]
  /** Slot-seconds of attempts that failed, were retried or lost. */
  readonly failedSeconds: number
}

/** All times, including `range`, exclude the pauses of the run. */
export function slotSecondsOf(state: BoundsState, query: BoundsQuery, range: TimeRange): SlotsView {
  const hasNodes = state.nodes.some(hasCores)
  const workers = nodesOfLanes(query, range.from)
  const models = new Set(state.requests.flatMap((one) => (one.isPrompt ? [one.backend] : [])))
  const nodes = hasNodes
    ? state.nodes.map(withoutPauses(state))
    : workers.filter(({ backend }) => !models.has(backend))
  const runOf = (own: readonly SlotNode[], backend: string) => {
    const { requests } = state
    const isOwn = Uint8Array.from(requests, (request) => (request.backend === backend ? 1 : 0))
    const { failed, ...used } = usesOf(state, query, own)
    return { nodes: own, requests, uses: used, ...waitsOf(state, query, isOwn), failed }
  }
  const slotSeconds = createSlotSeconds()
  const uses: BackendUse[] = []
  let failedSeconds = 0
  const backends = new Set(nodes.filter(hasCores).map(({ backend }) => backend))
  for (const backend of backends) {
    const { failed, ...run } = runOf(
      nodes.filter((node) => node.backend === backend),
      backend,
    )
    failedSeconds += failed
    const wide = wideTasksOf(state, query, backend)
    uses.push({ backend, wide, ...classifySlots({ ...run, ...range }, slotSeconds) })
  }
  const unsized = [...new Set(workers.map(({ backend }) => backend))]
    .filter((backend) => !backends.has(backend))
    .map((backend) => {
      const own = workers.filter((node) => node.backend === backend)
      return {
        backend,
        isModel: models.has(backend),
        ...useOf({ ...runOf(own, backend), ...range }),
      }
    })
  const ranges = uses.map(({ sizes }) => sizeRange(sizes, 'cores'))
  const slots = ranges.reduce((sum, { max }) => sum + max, 0)
  const fewestSlots = ranges.reduce((sum, { min }) => sum + min, 0)
  return { slots, fewestSlots, slotSeconds, backends: uses, unsized, failedSeconds }
}

/** Whether the node has had cores at any time. */
const hasCores = ({ cores, earlier }: SlotNode): boolean =>
  cores > 0 || earlier.some((size) => size.cores > 0)

const withoutPauses =
  ({ pauses }: BoundsState) =>
  (node: SlotNode): SlotNode => ({
    ...node,
    changes: node.changes.map((time) => activeTime(pauses, time)),
    earlier: node.earlier.map((size) => ({ ...size, until: activeTime(pauses, size.until) })),
  })

/** Nodes for a record without known nodes: every worker counts as a slot, except for models. */
function nodesOfLanes({ lanes }: BoundsQuery, from: number): SlotNode[] {
  const nodes = new Map<number, SlotNode>()
  for (let lane = 0; lane < lanes.lanes.size; lane++) {
    const number = valueAt(lanes.nodeOfLane, lane)
    const known = nodes.get(number)
    if (known !== undefined) known.cores++
    else {
      const [backend = '', nodeId = ''] = JSON.parse(textAt(lanes.nodes, number)) as string[]
      const size = { ...noSize, cores: 1 }
      const node = { backend, nodeId, ...size, earlier: [], session: 0, changes: [from] }
      nodes.set(number, node)
    }
  }
  return [...nodes.values()]
}

/** The attempts on these nodes. */
function usesOf(state: BoundsState, { lanes }: BoundsQuery, nodes: readonly SlotNode[]) {
  const numbers = new Map(nodes.map(({ backend, nodeId }, at) => [`${backend}\0${nodeId}`, at]))
  const nodeOfLane = Array.from({ length: lanes.lanes.size }, (_, lane) => {
    const pair = JSON.parse(textAt(lanes.nodes, valueAt(lanes.nodeOfLane, lane))) as string[]
    return numbers.get(pair.join('\0')) ?? -1
  })
  const size = lanes.size - lanes.first
  const uses = { ...createIntervals(size), node: new Uint32Array(size) }
  let [count, failed] = [0, 0]
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const node = nodeOfLane[valueAt(lanes.lane, segment)] ?? -1
    if (node === -1) continue
    const start = activeTime(state.pauses, valueAt(lanes.start, segment))
    const seconds = valueAt(lanes.seconds, segment)
    const outcome = valueAt(lanes.outcome, segment)
    const request = valueAt(state.requestOfTask, valueAt(lanes.task, segment))
    uses.from[count] = start
    uses.to[count] = outcome === outcomeNumbers.running ? Infinity : start + seconds
    uses.request[count] = request
    uses.node[count] = node
    if (failedOutcomes.has(outcome)) failed += seconds * coresOf(state, request)
    count++
  }
  return { ...cutIntervals(uses, count), node: uses.node.subarray(0, count), failed }
}

/**
 * The times in which tasks of these requests were ready but did not run: from being ready to the
 * first start, and from the end of a retry delay to the next start.
 */
function waitsOf(
  state: BoundsState,
  { counts, lanes }: BoundsQuery,
  isOwn: Uint8Array,
): Pick<SlotRun, 'waits' | 'limitWaits' | 'workerStarts' | 'lastReady'> {
  const tasks = counts.index.names.size
  const retries = retriesIn(lanes)
  const firstWaits = state.hasLimits ? 2 * tasks : tasks
  const waits = createIntervals(firstWaits + retries + waitingIn(state.attended))
  const firsts = firstOnWorkers(state, lanes)
  const [limitWaits, workerStarts] = [new Set<number>(), new Set<number>()]
  let [count, lastReady] = [0, -Infinity]
  const addRequest = (request: number, from: number, to: number, kind?: WaitKind): void => {
    if (isOwn[request] !== 1 || to <= from) return
    if (kind === 'limit') limitWaits.add(count)
    if (kind === 'worker' && isForWorker(state, request, from, to)) workerStarts.add(count)
    waits.from[count] = activeTime(state.pauses, from)
    waits.to[count] = activeTime(state.pauses, to)
    waits.request[count++] = request
  }
  const add: AddWait = (task, from, to, kind) =>
    addRequest(valueAt(state.requestOfTask, task), from, to, kind)
  for (let task = 0; task < tasks; task++) {
    const passed = stagesOf(counts, task)
    if ((passed & stages.submitted) === 0) continue
    const { ready, queued, started, ended } = storyOf(state.times, task, passed)
    const isOwnTask = isOwn[valueAt(state.requestOfTask, task)] === 1
    if (isOwnTask && ready !== null && ready > lastReady) lastReady = ready
    const isLeft = isInterrupted(counts, task) && started === null && ended === null
    if (isLeft || ready === null) continue
    const to = started ?? ended ?? Infinity
    const released = state.hasLimits ? (queued ?? to) : ready
    add(task, ready, released, 'limit')
    add(task, released, to, firsts.tasks.has(task) ? 'worker' : undefined)
  }
  if (retries > 0) addRetryWaits(state, { counts, lanes }, firsts.segments, add)
  for (const { from, to, waiting, request } of state.attended) {
    for (let one = 0; one < Math.min(waiting, maxWaiting); one++) addRequest(request, from, to)
  }
  const last = activeTime(state.pauses, lastReady)
  return { waits: cutIntervals(waits, count), limitWaits, workerStarts, lastReady: last }
}

/** Closures and prompts need no worker, and no worker starts while no session is running. */
const isForWorker = (state: BoundsState, request: number, from: number, to: number): boolean =>
  (state.requests[request]?.limit ?? null) !== null &&
  !state.attended.some((pause) => pause.from < to && pause.to > from)

/** The reason for a wait besides slots: the limit of a name, or possibly a starting worker. */
type WaitKind = 'limit' | 'worker' | undefined

type AddWait = (task: number, from: number, to: number, kind: WaitKind) => void

/** The first segment of each worker in each session, and the tasks that begin with it. */
function firstOnWorkers({ pauses }: BoundsState, lanes: LanesState) {
  const [segments, tasks] = [new Set<number>(), new Set<number>()]
  // Some segments were dropped, so the first ones are unknown.
  if (lanes.first > 0) return { segments, tasks }
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

function wideTasksOf(state: BoundsState, { counts }: BoundsQuery, backend: string): WideTasks {
  const cores = state.requests.map((one, at) => (one.backend === backend ? coresOf(state, at) : 0))
  let [count, max] = [0, 0]
  for (let task = 0; task < counts.index.names.size; task++) {
    const asked = cores[valueAt(state.requestOfTask, task)] ?? 0
    if (asked <= 1 || (stagesOf(counts, task) & stages.submitted) === 0) continue
    count++
    max = Math.max(max, asked)
  }
  return { count, max }
}

/** The maximum number of waits kept per pause, more than any run has slots. */
const maxWaiting = 10_000

const waitingIn = (pauses: readonly Pause[]): number =>
  pauses.reduce((sum, { waiting }) => sum + Math.min(waiting, maxWaiting), 0)

function coresOf({ requests }: BoundsState, number: number): number {
  const { cores, ranks } = requests[number] ?? oneCore
  return cores * ranks
}

function retriesIn(lanes: LanesState): number {
  let count = 0
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (mayBeRetried(valueAt(lanes.outcome, segment), lanes)) count++
  }
  return count
}

function addRetryWaits(
  state: BoundsState,
  { counts, lanes }: Pick<BoundsQuery, 'counts' | 'lanes'>,
  firsts: ReadonlySet<number>,
  add: AddWait,
): void {
  /** For each task that may be retried, the end of its retry delay. */
  const retryAt = new Map<number, { readonly time: number; readonly isOpen: boolean }>()
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    const task = valueAt(lanes.task, segment)
    const start = valueAt(lanes.start, segment)
    const from = retryAt.get(task)
    if (from !== undefined) add(task, from.time, start, firsts.has(segment) ? 'worker' : undefined)
    retryAt.delete(task)
    const outcome = valueAt(lanes.outcome, segment)
    if (!mayBeRetried(outcome, lanes)) continue
    const end = start + valueAt(lanes.seconds, segment)
    const time = end + valueAt(lanes.retryDelay, segment)
    retryAt.set(task, { time, isOpen: outcome !== outcomeNumbers.canceled })
  }
  for (const [task, { time, isOpen }] of retryAt) {
    if (!isOpen || isInterrupted(counts, task)) continue
    const { ended } = storyOf(state.times, task, stagesOf(counts, task))
    add(task, time, ended ?? Infinity, undefined)
  }
}

const createIntervals = (size: number): Intervals => ({
  from: new Float64Array(size),
  to: new Float64Array(size),
  request: new Uint16Array(size),
})

const cutIntervals = ({ from, to, request }: Intervals, count: number): Intervals => ({
  from: from.subarray(0, count),
  to: to.subarray(0, count),
  request: request.subarray(0, count),
})
