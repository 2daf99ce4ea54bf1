/** What bounds keep of a run: the times of its tasks, what they ask for, and the nodes. */

import { type Column, createColumn, setValue } from '../columns.ts'
import { hasEnded, stages } from '../lifecycle.ts'
import { numberOf, resumption, type TaskStep, textOf, type ViewEvent } from '../panel.ts'
import type { CountsState } from '../panels/counts.ts'
import type { GraphState } from '../panels/graph.ts'
import type { LanesState } from '../panels/lanes.ts'
import type { NamesState } from '../panels/names.ts'
import type { SlotNode, SlotRequest } from './slot-classes.ts'
import { createTaskTimes, recordReady, recordStage, type TaskTimes } from './task-times.ts'

export interface BoundsState {
  readonly times: TaskTimes
  /** For each task what it asks for, an index into `requests`. */
  readonly requestOfTask: Column
  readonly requests: SlotRequest[]
  /** By their JSON. */
  readonly requestNumbers: Map<string, number>
  readonly nodes: SlotNode[]
  /** By backend and node. */
  readonly nodeNumbers: Map<string, number>
  firstTime: number
  lastTime: number
}

/** The other states of the same pass. */
export interface BoundsQuery {
  readonly counts: CountsState
  readonly lanes: LanesState
  readonly graph: GraphState
  readonly names: NamesState
}

/** Further ones are not told apart: their tasks have this number and count as one core each. */
const mostRequests = 255
const mostNodes = 10_000
/** A node that comes and goes more often counts as being there. */
const mostChanges = 1000

export const createBounds = (): BoundsState => ({
  times: createTaskTimes(),
  requestOfTask: createColumn('u8'),
  requests: [],
  requestNumbers: new Map(),
  nodes: [],
  nodeNumbers: new Map(),
  firstTime: Infinity,
  lastTime: -Infinity,
})

export function takeBounds(state: BoundsState, event: ViewEvent, step: TaskStep): void {
  // The nodes of a session leave with it.
  if (step === resumption) for (const node of state.nodes) leave(node, state.lastTime)
  if (event.event_time < state.firstTime) state.firstTime = event.event_time
  if (event.event_time > state.lastTime) state.lastTime = event.event_time
  if (step.task === -1) followNodes(state, event)
  else followTask(state, event, step)
}

function followTask(state: BoundsState, event: ViewEvent, step: TaskStep): void {
  const { task, stage, before, after } = step
  if (event.event_type === 'tutti.TaskResolved' && !hasEnded(after)) {
    recordReady(state.times, task, event.event_time)
  }
  if (stage === 0 || after === before) return
  recordStage(state.times, event, step)
  if (stage === stages.submitted) {
    setValue(state.requestOfTask, task, requestOf(state, event))
  }
}

function requestOf(state: BoundsState, { backend, attributes }: ViewEvent): number {
  const { resources } = attributes
  const isGiven = typeof resources === 'object' && resources !== null
  const key = isGiven ? `${backend} ${JSON.stringify(resources)}` : backend
  const known = state.requestNumbers.get(key)
  if (known !== undefined) return known
  if (state.requests.length >= mostRequests) return mostRequests
  const given = (isGiven ? resources : {}) as Readonly<Record<string, unknown>>
  state.requests.push({
    backend,
    cores: Math.max(1, numberOf(given['cores']) ?? 1),
    gpus: Math.max(0, numberOf(given['gpus']) ?? 0),
    memoryMb: Math.max(0, numberOf(given['memory_mb']) ?? 0),
    ranks: Math.max(1, numberOf(given['ranks']) ?? 1),
    labels: labelsOf(given['labels']),
  })
  state.requestNumbers.set(key, state.requests.length - 1)
  return state.requests.length - 1
}

function labelsOf(value: unknown): Readonly<Record<string, string>> {
  if (typeof value !== 'object' || value === null) return {}
  return Object.fromEntries(Object.entries(value).map(([name, label]) => [name, textOf(label)]))
}

function followNodes(state: BoundsState, event: ViewEvent): void {
  const { event_type: type, event_time: time } = event
  if (type === 'tutti.NodeJoined') join(nodeOf(state, event), event)
  else if (type === 'tutti.NodeLost' || type === 'tutti.NodeDrained') {
    const known = state.nodeNumbers.get(nodeKey(event.backend, event.node_id))
    leave(state.nodes[known ?? -1], time)
  }
}

/** The name of a node in `nodeNumbers`, and of the node of a lane. */
const nodeKey = (backend: string, nodeId: string | null): string =>
  JSON.stringify([backend, nodeId ?? ''])

function nodeOf(state: BoundsState, { backend, node_id }: ViewEvent): SlotNode | undefined {
  const key = nodeKey(backend, node_id)
  const known = state.nodeNumbers.get(key)
  if (known !== undefined || state.nodes.length >= mostNodes) return state.nodes[known ?? -1]
  const capacity = { cores: 0, gpus: 0, memoryMb: 0, labels: {} }
  state.nodes.push({ backend, nodeId: node_id ?? '', ...capacity, changes: [] })
  state.nodeNumbers.set(key, state.nodes.length - 1)
  return state.nodes.at(-1)
}

/** A node that comes back with less or more has its largest size all the time. */
function join(node: SlotNode | undefined, event: ViewEvent): void {
  if (node === undefined) return
  node.cores = Math.max(node.cores, numberOf(event.cores) ?? 0)
  node.gpus = Math.max(node.gpus, numberOf(event.gpus) ?? 0)
  node.memoryMb = Math.max(node.memoryMb, numberOf(event.memory_mb) ?? 0)
  node.labels = labelsOf(event.labels)
  if (!isHere(node) && node.changes.length < mostChanges) node.changes.push(event.event_time)
}

function leave(node: SlotNode | undefined, time: number): void {
  if (node !== undefined && isHere(node) && node.changes.length < mostChanges) {
    node.changes.push(time)
  }
}

const isHere = ({ changes }: SlotNode): boolean => changes.length % 2 === 1
