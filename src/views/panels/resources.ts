/** Resources: the utilization of each node, last, mean and highest. Constant size. */

import { numberOf, type Panel, textOf, type ViewEvent } from '../panel.ts'

/** One reading of a node over time. */
interface Gauge {
  last: number | null
  max: number | null
  sum: number
  count: number
}

export interface NodeUsage {
  readonly backend: string
  readonly nodeId: string
  readonly cpu: Gauge
  readonly memory: Gauge
  readonly gpu: Gauge
  /** Its last readings are no longer current. */
  hasLeft: boolean
}

export interface ResourcesState {
  /** By backend and node. */
  readonly nodes: Map<string, NodeUsage>
  /** The session's own host, while it is sampled. */
  ownHost: NodeUsage | null
  /** The node of the latest reading. */
  latest: NodeUsage | null
}

/** `null` when nothing was read. */
export interface UtilizationSummary {
  readonly last: number | null
  readonly mean: number | null
  readonly max: number | null
}

export interface NodeSummary {
  readonly backend: string
  readonly node_id: string
  readonly cpu_percent: UtilizationSummary
  readonly memory_percent: UtilizationSummary
  readonly gpu_percent: UtilizationSummary
}

/** Further nodes are ignored. */
const mostNodes = 100_000

export const resources: Panel<ResourcesState, void, readonly NodeSummary[]> = {
  create: () => ({ nodes: new Map(), ownHost: null, latest: null }),

  take(state, event) {
    if (event.event_type === 'tutti.NodeJoined') endOwnHost(state)
    if (event.event_type === 'tutti.NodeLost' || event.event_type === 'tutti.NodeDrained') {
      leave(state, state.nodes.get(keyOf(event)))
    }
    // The readings of a single GPU are not those of its node.
    if (event.event_type !== 'ResourceUpdate' || event.resource_scope !== 'per_node') return
    const node = nodeOf(state, event)
    if (node === null) return
    record(node.cpu, event.cpu_percent)
    record(node.memory, event.memory_percent)
    record(node.gpu, event.gpu_percent)
    node.hasLeft = false
    if (node.backend === 'tutti') state.ownHost = node
    state.latest = node
  },

  /** One entry per backend and node, in the order of their first reading. */
  show: ({ nodes }) =>
    [...nodes.values()].map(({ backend, nodeId, cpu, memory, gpu }) => ({
      backend,
      node_id: nodeId,
      cpu_percent: toUtilization(cpu),
      memory_percent: toUtilization(memory),
      gpu_percent: toUtilization(gpu),
    })),
}

/** Whether an event of this type changes anything here. */
export const concernsNodes = (eventType: string): boolean => nodeEvents.has(eventType)

const nodeEvents = new Set([
  'ResourceUpdate',
  'tutti.NodeJoined',
  'tutti.NodeLost',
  'tutti.NodeDrained',
])

const keyOf = ({ backend, node_id }: ViewEvent): string =>
  JSON.stringify([backend, textOf(node_id)])

function leave(state: ResourcesState, node: NodeUsage | undefined): void {
  if (node === undefined) return
  node.hasLeft = true
  if (state.latest === node) state.latest = null
}

/** A session samples its own host only while no backend has a node. */
function endOwnHost(state: ResourcesState): void {
  if (state.ownHost !== null) leave(state, state.ownHost)
  state.ownHost = null
}

function nodeOf({ nodes }: ResourcesState, event: ViewEvent): NodeUsage | null {
  const { backend, node_id } = event
  const nodeId = textOf(node_id)
  const key = keyOf(event)
  const known = nodes.get(key)
  if (known !== undefined) return known
  if (nodes.size >= mostNodes) return null
  const gauge = (): Gauge => ({ last: null, max: null, sum: 0, count: 0 })
  const node = {
    backend,
    nodeId,
    cpu: gauge(),
    memory: gauge(),
    gpu: gauge(),
    hasLeft: false,
  }
  nodes.set(key, node)
  return node
}

/** An unknown reading keeps the last known one. */
function record(gauge: Gauge, reading: unknown): void {
  const value = numberOf(reading)
  if (value === null) return
  gauge.last = value
  gauge.max = Math.max(gauge.max ?? value, value)
  gauge.sum += value
  gauge.count++
}

const toUtilization = ({ last, max, sum, count }: Gauge): UtilizationSummary => ({
  last,
  mean: count === 0 ? null : sum / count,
  max,
})
