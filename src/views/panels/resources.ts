/**
 * Resources: the utilization of each node, with the last value, the mean, the maximum, and the
 * values over time. Has a constant size.
 */

import { numberOf, type Panel, textOf, type ViewEvent } from '../panel.ts'
import { addToSeries, createSeries, type Series, type SeriesPoint, showSeries } from '../series.ts'

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
  readonly runCpu: Gauge
  readonly memory: Gauge
  readonly gpu: Gauge
  /** Whether the node has left. If so, its last measurements are no longer current. */
  hasLeft: boolean
  /** CPU, memory and GPU utilization over time; `null` if there are too many series. */
  readonly series: Series | null
  readonly gpus: Map<number, Series>
}

export interface ResourcesState {
  readonly nodes: Map<string, NodeUsage>
  /** The session's own host, while the session samples it. */
  ownHost: NodeUsage | null
  latest: NodeUsage | null
  /** The number of series of nodes and GPUs. */
  seriesCount: number
}

/** Utilization in percent; `null` if not measured. */
export interface UtilizationSummary {
  readonly last: number | null
  readonly mean: number | null
  readonly max: number | null
}

/** The utilization of a node. */
export interface NodeSummary {
  readonly backend: string
  readonly node_id: string
  readonly cpu_percent: UtilizationSummary
  /** The part of `cpu_percent` that the run itself uses: its workers, programs and models. */
  readonly run_cpu_percent: UtilizationSummary
  readonly memory_percent: UtilizationSummary
  readonly gpu_percent: UtilizationSummary
}

/** The utilization of a node over time, in percent. */
export interface NodeSeries {
  readonly backend: string
  readonly node_id: string
  /** The means of CPU, memory and GPU utilization in each time interval. */
  readonly points: readonly SeriesPoint[]
  readonly gpus: readonly { readonly gpu_id: number; readonly points: readonly SeriesPoint[] }[]
}

/**
 * The maximum number of series, because each series takes up to 6 KB. Further nodes and GPUs have
 * no series.
 */
const maxSeries = 2000
/** The maximum number of nodes. Further nodes are ignored. */
const maxNodes = 100_000

export const resources: Panel<ResourcesState, void, readonly NodeSummary[]> = {
  create: () => ({ nodes: new Map(), ownHost: null, latest: null, seriesCount: 0 }),

  take(state, event) {
    if (event.event_type === 'tutti.NodeJoined') endOwnHost(state)
    if (event.event_type === 'tutti.NodeLost' || event.event_type === 'tutti.NodeDrained') {
      markLeft(state, state.nodes.get(nodeKey(event)))
    }
    if (event.event_type !== 'ResourceUpdate') return
    // Events of a single GPU do not describe the node as a whole.
    if (event.resource_scope !== 'per_node') return recordGpu(state, event)
    const node = findOrAddNode(state, event)
    if (node === null) return
    const { cpu_percent: cpu, memory_percent: memory, gpu_percent: gpu } = event
    const values = [numberOf(cpu), numberOf(memory), numberOf(gpu)]
    if (node.series !== null) addToSeries(node.series, event.event_time, values)
    recordValue(node.cpu, event.cpu_percent)
    recordValue(node.runCpu, event.attributes['run_cpu_percent'])
    recordValue(node.memory, event.memory_percent)
    recordValue(node.gpu, event.gpu_percent)
    node.hasLeft = false
    if (node.backend === 'tutti') state.ownHost = node
    state.latest = node
  },

  /** Returns one entry per backend and node, in order of the first measurement. */
  show: ({ nodes }) => Array.from(nodes.values(), toSummary),
}

const toSummary = ({ backend, nodeId, cpu, runCpu, memory, gpu }: NodeUsage): NodeSummary => ({
  backend,
  node_id: nodeId,
  cpu_percent: toUtilization(cpu),
  run_cpu_percent: toUtilization(runCpu),
  memory_percent: toUtilization(memory),
  gpu_percent: toUtilization(gpu),
})

/** Groups usage by node, because the session samples its host too, and backends share nodes. */
const usageByNode = ({ nodes }: ResourcesState): MapIterator<NodeUsage[]> =>
  Map.groupBy(nodes.values(), ({ nodeId }) => nodeId).values()

/** Returns one entry per node for all its backends. `backend` is the one that was added last. */
export const showNodes = (state: ResourcesState): NodeSummary[] =>
  Array.from(usageByNode(state), (all) => {
    const last = all.at(-1) as NodeUsage
    const joinedGauge = (pick: (usage: NodeUsage) => Gauge): Gauge =>
      all.map(pick).reduce(joinGauges)
    return toSummary({
      ...last,
      cpu: joinedGauge(({ cpu }) => cpu),
      runCpu: joinedGauge(({ runCpu }) => runCpu),
      memory: joinedGauge(({ memory }) => memory),
      gpu: joinedGauge(({ gpu }) => gpu),
    })
  })

const joinGauges = (a: Gauge, b: Gauge): Gauge => ({
  last: b.last ?? a.last,
  max: a.max === null || b.max === null ? (a.max ?? b.max) : Math.max(a.max, b.max),
  sum: a.sum + b.sum,
  count: a.count + b.count,
})

/**
 * Returns one entry per node, in order of the first measurement. If a node has several backends,
 * the longest series is returned.
 */
export const showNodeSeries = (state: ResourcesState): NodeSeries[] =>
  Array.from(usageByNode(state), (all) => {
    const shown = all.map(({ backend, nodeId, series, gpus }) => ({
      backend,
      node_id: nodeId,
      points: series === null ? [] : showSeries(series),
      gpus: Array.from(gpus, ([gpu_id, one]) => ({ gpu_id, points: showSeries(one) })),
    }))
    return shown.reduce((longest, one) =>
      one.points.length > longest.points.length ? one : longest,
    )
  })

/** Records the utilization of a GPU. In each poll, its event follows the event of its node. */
function recordGpu(state: ResourcesState, event: ViewEvent): void {
  const node = state.nodes.get(nodeKey(event))
  const id = numberOf(event.gpu_id)
  if (node === undefined || id === null) return
  const known = node.gpus.get(id) ?? createNodeSeries(state, 1)
  if (known === null) return
  node.gpus.set(id, known)
  addToSeries(known, event.event_time, [numberOf(event.gpu_percent)])
}

function createNodeSeries(state: ResourcesState, width: number): Series | null {
  if (state.seriesCount >= maxSeries) return null
  state.seriesCount++
  return createSeries(width)
}

export const isNodeEvent = (eventType: string): boolean => nodeEvents.has(eventType)

const nodeEvents = new Set([
  'ResourceUpdate',
  'tutti.NodeJoined',
  'tutti.NodeLost',
  'tutti.NodeDrained',
])

const nodeKey = ({ backend, node_id }: ViewEvent): string =>
  JSON.stringify([backend, textOf(node_id)])

function markLeft(state: ResourcesState, node: NodeUsage | undefined): void {
  if (node === undefined) return
  node.hasLeft = true
  if (state.latest === node) state.latest = null
}

/** Ends the measurements of the session's host, which are only taken before a node joins. */
function endOwnHost(state: ResourcesState): void {
  if (state.ownHost !== null) markLeft(state, state.ownHost)
  state.ownHost = null
}

function findOrAddNode(state: ResourcesState, event: ViewEvent): NodeUsage | null {
  const { nodes } = state
  const { backend, node_id } = event
  const nodeId = textOf(node_id)
  const key = nodeKey(event)
  const known = nodes.get(key)
  if (known !== undefined) return known
  if (nodes.size >= maxNodes) return null
  const gauge = (): Gauge => ({ last: null, max: null, sum: 0, count: 0 })
  const node = {
    backend,
    nodeId,
    cpu: gauge(),
    runCpu: gauge(),
    memory: gauge(),
    gpu: gauge(),
    hasLeft: false,
    series: createNodeSeries(state, 3),
    gpus: new Map<number, Series>(),
  }
  nodes.set(key, node)
  return node
}

/** Records a measurement. An unknown value does not replace the last known value. */
function recordValue(gauge: Gauge, reading: unknown): void {
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
