/** The state of the bounds panel: times of tasks, requested resources, and nodes. */

import { createColumn, setValue, valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import { numberOf, resumption, type TaskStep, textOf, secondsBeforeStart } from '../panel.ts'
import type { ViewEvent } from '../panel.ts'
import type { CountsState } from '../panels/counts.ts'
import type { GraphState } from '../panels/graph.ts'
import type { LanesState } from '../panels/lanes.ts'
import type { NamesState } from '../panels/names.ts'
import { createBlockTree, addBlockDelay, updateBlockTree } from './block-tree.ts'
import { isPresent, type NodeSize, noSize, type SlotLimit, type SlotNode } from './slots.ts'
import { sizeOf, type SlotRequest } from './slots.ts'
import { createTaskTimes, leftStages, moveStart, recordReady, recordStage } from './task-times.ts'
import { setRun, readStageTimes } from './task-times.ts'

export const createBounds = () => ({
  times: createTaskTimes(),
  requestOfTask: createColumn('u32'),
  /** The priority of each task. It is set only if it differs from 0, the default of a column. */
  priorityOfTask: createColumn('f32'),
  requests: [] as SlotRequest[],
  /** Request numbers by the text of a task's attributes. Several texts may have the same number. */
  requestNumbers: new Map<string, number>(),
  nodes: [] as SlotNode[],
  nodeNumbers: new Map<string, number>(),
  pauses: [] as Pause[],
  /** Pauses in which tasks continued to run on agents of a cluster. */
  attended: [] as Pause[],
  /** New start times of tasks that were running when the previous session was killed. */
  restartTimes: new Map<number, number>(),
  blocks: createBlockTree(),
  /** Whether a session limits tasks by name. Limited tasks wait before they are queued. */
  hasLimits: false,
  /** The number of tasks canceled because their session was closed, for example by Ctrl-C. */
  stopped: 0,
  /** The number of sessions that have ended. */
  session: 0,
  sessionStart: -Infinity,
  firstTime: Infinity,
  lastTime: -Infinity,
})

export type BoundsState = ReturnType<typeof createBounds>

export interface Pause {
  readonly from: number
  readonly to: number
  /** The number of tasks that waited for a slot during the whole pause. */
  waiting: number
  /** The request of one of the tasks that waited. */
  request: number
}

/** The states of other panels of the same pass, from which bounds are computed. */
export interface BoundsQuery {
  readonly counts: CountsState
  readonly lanes: LanesState
  readonly graph: GraphState
  readonly names: NamesState
  /** The end of the run so far, in wall-clock seconds. Default: the time of the latest event. */
  readonly now?: number
}

/**
 * Beyond this number of requests, memory is rounded down to a power of 2, so that more requests are
 * equal.
 */
const maxExactRequests = 255
/** Beyond this number of requests, tasks with further requests count as one core each. */
const maxRequests = 512
const maxRequestTexts = 4096
const maxPauses = 1000
const maxNodes = 10_000
/**
 * The maximum number of joins and leaves that are kept per node. The number must be even, so that
 * the last kept change is a leave. This leave is removed if the node returns: the node then counts
 * as present since its last kept join.
 */
const maxChanges = 1000
/** The maximum number of size changes per node. After that, the node counts with its final size. */
const maxSizes = 100

export function updateBounds(state: BoundsState, event: ViewEvent, step: TaskStep): void {
  if (step === resumption) endSession(state, event.event_time)
  if (event.event_time < state.firstTime) state.firstTime = event.event_time
  if (event.event_time > state.lastTime) state.lastTime = event.event_time
  if (event.attributes['tutti.limits'] !== undefined) state.hasLimits = true
  if (step.task === -1) recordNode(state, event)
  else recordTask(state, event, step)
}

/** Ends a session. Removes all nodes, which add slots to the next session only if they join it. */
function endSession(state: BoundsState, next: number): void {
  const { nodes, pauses, lastTime, blocks } = state
  blocks.open.clear()
  for (const node of nodes) {
    recordLeave(node, lastTime)
    if (node.cores > 0) resize(node, noSize, next)
  }
  state.session++
  state.stopped = 0
  state.sessionStart = next
  if (next <= lastTime || pauses.length >= maxPauses) return
  pauses.push({ from: lastTime, to: next, waiting: 0, request: 0 })
}

/** Returns `time` minus the lengths of earlier pauses. */
export function activeTime(pauses: readonly Pause[], time: number): number {
  let active = time
  for (const { from, to } of pauses) if (time > from) active -= Math.min(time, to) - from
  return active
}

function recordTask(state: BoundsState, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before, after } = step
  if (stage === 0) return recordOtherEvent(state, event, step)
  if (after === before) return
  updateBlockTree(state.blocks, event, step)
  if (step.earlier !== 0) countWaiting(state, step)
  const isRestart = stage === stages.started && hasStarted(leftStages(state.times, task))
  recordStage(state.times, event, step)
  if (isRestart) state.restartTimes.set(task, event.event_time)
  if (hasEnded(after) && hasStarted(before) && state.pauses.length + state.attended.length > 0) {
    correctStart(state, event, task)
  }
  if (stage === stages.canceled && event.attributes['reason'] === 'session closed') state.stopped++
  if (stage === stages.submitted) {
    setValue(state.requestOfTask, task, findOrAddRequest(state, event))
    const priority = numberOf(event.attributes['tutti.priority']) ?? 0
    if (priority !== valueAt(state.priorityOfTask, task)) {
      setValue(state.priorityOfTask, task, priority)
    }
  } else if (stage === stages.started && isClosure(event)) {
    const request = valueAt(state.requestOfTask, task)
    setValue(state.requestOfTask, task, withoutLimit(state, request))
  }
}

function recordOtherEvent(state: BoundsState, event: ViewEvent, { task, after }: TaskStep): void {
  if (event.event_type === 'tutti.TaskAttempt') addBlockDelay(state.blocks, event, task)
  if (event.event_type === 'tutti.TaskResolved' && !hasEnded(after)) {
    recordReady(state.times, task, event.event_time)
  }
}

function countWaiting({ pauses, requestOfTask }: BoundsState, { task, earlier }: TaskStep): void {
  const hasWaited = (earlier & stages.submitted) !== 0 && !hasStarted(earlier)
  const pause = pauses.at(-1)
  if (!hasWaited || hasEnded(earlier) || pause === undefined) return
  pause.waiting++
  pause.request = valueAt(requestOfTask, task)
}

/** Corrects the start of an ended task that may have started while no session was running. */
function correctStart(state: BoundsState, event: ViewEvent, task: number): void {
  const restartTime = state.restartTimes.get(task)
  state.restartTimes.delete(task)
  const started =
    restartTime ?? readStageTimes(state.times, task, stages.started).started ?? Infinity
  const missed = secondsBeforeStart(event, started)
  if (missed === 0) return
  if (restartTime === undefined) moveStart(state.times, task, missed)
  else setRun(state.times, task, numberOf(event.duration_seconds) ?? 0)
  const trueStart = started - missed
  for (const pause of state.pauses.filter(({ to }) => to > trueStart))
    markAttended(state, pause, event)
}

/** Moves the pause to `attended`, because nodes of this backend were present in it. */
function markAttended(
  { pauses, attended, nodes }: BoundsState,
  pause: Pause,
  { backend }: ViewEvent,
) {
  pauses.splice(pauses.indexOf(pause), 1)
  attended.push(pause)
  for (const { changes, backend: own } of nodes) {
    const left = own === backend ? changes.indexOf(pause.from) : -1
    if (left % 2 === 1 && left + 1 < changes.length) changes.splice(left, 2)
  }
}

/**
 * Returns the number of a copy of the request that has no limit. For closures, which need no
 * worker.
 */
function withoutLimit(state: BoundsState, number: number): number {
  const text = `closure ${number}`
  const known = state.requestNumbers.get(text)
  if (known !== undefined) return known
  const request = state.requests[number]
  const found = request === undefined ? number : addRequest(state, { ...request, limit: null })
  state.requestNumbers.set(text, found)
  return found
}

/**
 * Returns the limit for a task, by its type. Closures have the same type as other functions; see
 * `isClosure`.
 */
function readLimit({ attributes }: ViewEvent): SlotLimit | null {
  if (attributes['task_type'] === 'compute') return 'processes'
  return attributes['task_type'] === 'function' ? 'workers' : null
}

const isClosure = ({ attributes }: ViewEvent): boolean => {
  const worker = attributes['worker_id']
  return typeof worker === 'string' && worker.endsWith('/main')
}

function findOrAddRequest(state: BoundsState, event: ViewEvent): number {
  const { backend, attributes } = event
  const { resources, task_type: type } = attributes
  const [limit, isPrompt] = [readLimit(event), type === 'ai']
  const isGiven = typeof resources === 'object' && resources !== null
  const kind = isPrompt ? 'ai' : (limit ?? '')
  const text = `${kind} ${backend}${isGiven ? ` ${JSON.stringify(resources)}` : ''}`
  const known = state.requestNumbers.get(text)
  if (known !== undefined) return known
  const given = (isGiven ? resources : {}) as Readonly<Record<string, unknown>>
  const number = addRequest(state, toRequest({ backend, limit, isPrompt }, given))
  if (state.requestNumbers.size < maxRequestTexts) state.requestNumbers.set(text, number)
  return number
}

const toRequest = (
  kind: Pick<SlotRequest, 'backend' | 'limit' | 'isPrompt'>,
  given: Readonly<Record<string, unknown>>,
): SlotRequest => ({
  ...kind,
  cores: Math.max(1, numberOf(given['cores']) ?? 1),
  gpus: Math.max(0, numberOf(given['gpus']) ?? 0),
  memoryMb: Math.max(0, numberOf(given['memory_mb']) ?? 0),
  ranks: Math.max(1, numberOf(given['ranks']) ?? 1),
  labels: readLabels(given['labels']),
})

function addRequest({ requests, requestNumbers }: BoundsState, exact: SlotRequest): number {
  const isExact = requests.length < maxExactRequests
  // Memory is rounded down, so that the computed minimum time of these tasks stays a lower bound.
  const memoryMb = exact.memoryMb < 1 ? 0 : 2 ** Math.floor(Math.log2(exact.memoryMb))
  const request = isExact ? exact : { ...exact, memoryMb }
  const key = JSON.stringify(request)
  const known = requestNumbers.get(key)
  if (known !== undefined) return known
  if (requests.length >= maxRequests) return maxRequests
  requests.push(request)
  requestNumbers.set(key, requests.length - 1)
  return requests.length - 1
}

function readLabels(value: unknown): Readonly<Record<string, string>> {
  if (typeof value !== 'object' || value === null) return {}
  return Object.fromEntries(Object.entries(value).map(([name, label]) => [name, textOf(label)]))
}

function recordNode(state: BoundsState, event: ViewEvent): void {
  const { event_type: type, event_time: time } = event
  if (type === 'tutti.NodeJoined') recordJoin(state, findOrAddNode(state, event), event)
  else if (type === 'tutti.NodeLost' || type === 'tutti.NodeDrained') {
    const known = state.nodeNumbers.get(nodeKey(event.backend, event.node_id))
    recordLeave(state.nodes[known ?? -1], time)
  }
}

/** The key of a node in `nodeNumbers`. The nodes of lanes have the same keys. */
const nodeKey = (backend: string, nodeId: string | null): string =>
  JSON.stringify([backend, nodeId ?? ''])

function findOrAddNode(state: BoundsState, { backend, node_id }: ViewEvent): SlotNode | undefined {
  const key = nodeKey(backend, node_id)
  const known = state.nodeNumbers.get(key)
  if (known !== undefined || state.nodes.length >= maxNodes) return state.nodes[known ?? -1]
  const earlier = state.session === 0 ? [] : [{ ...noSize, until: state.sessionStart }]
  const { session } = state
  const nodeId = node_id ?? ''
  state.nodes.push({ backend, nodeId, ...noSize, earlier, session: session - 1, changes: [] })
  state.nodeNumbers.set(key, state.nodes.length - 1)
  return state.nodes.at(-1)
}

/**
 * Records that a node has joined. Its new size applies from now on. If this is the node's first
 * join in the session, the size also applies to the time before.
 */
function recordJoin(state: BoundsState, node: SlotNode | undefined, event: ViewEvent): void {
  if (node === undefined) return
  const { session, sessionStart } = state
  const { earlier } = node
  const size = readSize(event)
  if (node.session === session) resize(node, size, event.event_time)
  else {
    const isNext = node.session === session - 1
    if (isNext && isSameSize(earlier.at(-1), size)) earlier.pop()
    if (!isNext && earlier.length < maxSizes) earlier.push({ ...noSize, until: sessionStart })
    Object.assign(node, size)
  }
  node.session = session
  if (isPresent(node)) return
  if (node.changes.length < maxChanges) node.changes.push(event.event_time)
  else node.changes.pop()
}

const readSize = ({ cores, gpus, memory_mb, labels, attributes }: ViewEvent): NodeSize => ({
  cores: numberOf(cores) ?? 0,
  gpus: numberOf(gpus) ?? 0,
  memoryMb: numberOf(memory_mb) ?? 0,
  workers: numberOf(attributes['workers']) ?? 0,
  processes: numberOf(attributes['max_processes']) ?? 0,
  labels: readLabels(labels),
})

function resize(node: SlotNode, size: NodeSize, time: number): void {
  const { earlier } = node
  const before = sizeOf(node)
  if (isSameSize(before, size)) return
  // Event times may go backwards if the system clock was changed.
  const until = Math.max(time, earlier.at(-1)?.until ?? -Infinity)
  if (earlier.length < maxSizes) earlier.push({ ...before, until })
  Object.assign(node, size)
}

const isSameSize = (a: NodeSize | undefined, b: NodeSize): boolean =>
  a !== undefined && JSON.stringify(sizeOf(a)) === JSON.stringify(sizeOf(b))

function recordLeave(node: SlotNode | undefined, time: number): void {
  if (node !== undefined && isPresent(node)) node.changes.push(time)
}
