/** The free resources of a backend's nodes at the end of a record, and what a request lacks. */

import { hasLabels, timesIn } from '../tasks/resource-fit.ts'
import type { RunPass } from './all-panels.ts'
import { type HeldResource, isPresent, oneCore, type SlotNode } from './bounds/slots.ts'
import type { SlotLimit, SlotRequest, SlotResource } from './bounds/slots.ts'
import { textAt, valueAt } from './columns.ts'
import { outcomeNumbers } from './panels/lanes.ts'

/** The resource of which the backend's free slots have too little. */
export interface Shortage {
  /** `nodes`: there is no node. `backend`: it reports no nodes and runs `total` tasks. */
  readonly resource: SlotResource | 'nodes' | 'backend'
  /** The requested amount per rank; 0 for labels, nodes and backends. */
  readonly asked: number
  /** The maximum amount that is free on one node; `total` is that of the largest node. */
  readonly free: number
  readonly total: number
  /** The number of ranks of the request; `room` is how many would fit on all nodes now. */
  readonly ranks: number
  readonly room: number
  /** The labels that a node must have; empty if all nodes have them. */
  readonly labels: Readonly<Record<string, string>>
}

type Amounts = Readonly<Record<HeldResource, number>>

const kinds = ['gpus', 'memory', 'cores', 'workers', 'processes'] as const
/** Nodes that do not report these resources count as unlimited. */
const maybeUnlimited: ReadonlySet<HeldResource> = new Set(['memory', 'workers', 'processes'])

const mapAmounts = (amount: (kind: HeldResource) => number): Amounts => ({
  cores: amount('cores'),
  gpus: amount('gpus'),
  memory: amount('memory'),
  workers: amount('workers'),
  processes: amount('processes'),
})

const sizeOf = ({ cores, gpus, memoryMb, workers, processes }: SlotNode): Amounts => {
  const sizes = { cores, gpus, memory: memoryMb, workers, processes }
  return mapAmounts((kind) =>
    maybeUnlimited.has(kind) && sizes[kind] === 0 ? Infinity : sizes[kind],
  )
}

type Asking = Pick<SlotRequest, 'cores' | 'gpus' | 'memoryMb' | 'limit'>

const askedOf = ({ cores, gpus, memoryMb, limit }: Asking): Amounts => ({
  cores,
  gpus,
  memory: memoryMb,
  workers: limit === 'workers' ? 1 : 0,
  processes: limit === 'processes' ? 1 : 0,
})

const isEnough = (there: Amounts, asked: Amounts): boolean =>
  kinds.every((kind) => there[kind] >= asked[kind])

const roomIn = (there: Amounts, asked: Amounts): number =>
  Math.min(...kinds.map((kind) => timesIn(there[kind], asked[kind])))

interface NodeNow {
  readonly node: SlotNode
  readonly size: Amounts
  readonly free: Amounts
}

/** The free resources of the present nodes of one backend. */
export class FreeResources {
  readonly #nodes: readonly NodeNow[]
  /** Whether the backend has reported any node, including nodes that have left. */
  readonly #hasNodes: boolean
  readonly #running: number

  constructor(pass: RunPass, backend: string) {
    const { nodes } = pass.states.bounds
    this.#hasNodes = nodes.some((node) => node.backend === backend)
    const used = usedByNode(pass)
    this.#running = [...used]
      .filter(([node]) => (JSON.parse(node) as string[])[0] === backend)
      .reduce((sum, [, { tasks }]) => sum + tasks, 0)
    this.#nodes = nodes
      .filter((node) => node.backend === backend && isPresent(node))
      .map((node) => {
        const size = sizeOf(node)
        const taken = used.get(JSON.stringify([backend, node.nodeId]))?.amounts
        return { node, size, free: mapAmounts((kind) => size[kind] - (taken?.[kind] ?? 0)) }
      })
  }

  /** Whether the queue order is kept: on a single node that reports its limits. */
  get isOrdered(): boolean {
    const [first] = this.#nodes
    return this.#nodes.length === 1 && Number.isFinite(first?.size.workers)
  }

  /** Whether the limit of functions or programs is reached on all nodes. */
  isFull(limit: SlotLimit | null): boolean {
    return limit !== null && this.#nodes.every(({ free }) => free[limit] < 1)
  }

  /** Whether the only node where `request` could ever start is kept free for `other`. */
  isKeptFrom(request: SlotRequest, other: SlotRequest): boolean {
    const now = this.#fitting(request).filter(({ free }) => isEnough(free, askedOf(request)))
    const nodes = now.length > 0 ? now : this.#couldRun(request)
    const [only] = nodes
    return nodes.length === 1 && only !== undefined && this.#couldRun(other).includes(only)
  }

  /** Whether a node could run both requests. */
  hasCommonNode(one: SlotRequest, other: SlotRequest): boolean {
    const nodes = this.#couldRun(other)
    return this.#couldRun(one).some((node) => nodes.includes(node))
  }

  /** `null` if a slot is available, or if the record does not show the missing resource. */
  shortageOf(request: SlotRequest): Shortage | null {
    const { ranks } = request
    const none = { asked: 0, free: 0, total: 0, labels: {}, ranks, room: 0 }
    if (!this.#hasNodes) {
      return this.#running === 0 ? null : { ...none, resource: 'backend', total: this.#running }
    }
    if (this.#nodes.length === 0) return { resource: 'nodes', ...none }
    const fitting = this.#fitting(request)
    const labels = fitting.length === this.#nodes.length ? {} : request.labels
    if (fitting.length === 0) return { resource: 'labels', ...none, labels }
    const asked = askedOf(request)
    const sum = (room: (node: NodeNow) => number): number =>
      fitting.reduce((all, node) => all + room(node), 0)
    const room = sum(({ free }) => roomIn(free, asked))
    if (room >= ranks) return null
    const isShort = (kind: HeldResource): boolean =>
      sum(({ free }) => timesIn(free[kind], asked[kind])) < ranks
    const resource = kinds.find(isShort) ?? 'cores'
    return {
      resource,
      asked: asked[resource],
      free: Math.max(...fitting.map(({ free }) => free[resource])),
      total: Math.max(...fitting.map(({ size }) => size[resource])),
      labels,
      ranks,
      room,
    }
  }

  #couldRun(request: SlotRequest): NodeNow[] {
    return this.#fitting(request).filter(({ size }) => isEnough(size, askedOf(request)))
  }

  #fitting(request: SlotRequest): NodeNow[] {
    return this.#nodes.filter(({ node }) => hasLabels(node, request))
  }
}

/** The number of running tasks and the resources that they hold, by backend and node. */
function usedByNode({
  states: { lanes, bounds },
}: RunPass): Map<string, { readonly amounts: Amounts; readonly tasks: number }> {
  const used = new Map<string, { readonly amounts: Amounts; readonly tasks: number }>()
  for (let segment = lanes.first; segment < lanes.size; segment++) {
    if (valueAt(lanes.outcome, segment) !== outcomeNumbers.running) continue
    const node = textAt(lanes.nodes, valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)))
    const number = valueAt(bounds.requestOfTask, valueAt(lanes.task, segment))
    const request = bounds.requests[number] ?? oneCore
    const before = used.get(node)
    const held = askedOf(request)
    const taken = (kind: HeldResource): number =>
      (before?.amounts[kind] ?? 0) + held[kind] * request.ranks
    used.set(node, { amounts: mapAmounts(taken), tasks: (before?.tasks ?? 0) + 1 })
  }
  return used
}
