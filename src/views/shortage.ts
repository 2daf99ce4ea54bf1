/** The free resources of a backend at the end of a record, and what a request lacks. */

import { countFits, hasLabels } from '../tasks/resource-fit.ts'
import type { RunPass } from './all-panels.ts'
import { type Amounts, type HeldResource, isPresent, oneCore } from './bounds/slots.ts'
import type { SlotLimit, SlotNode, SlotRequest, SlotResource } from './bounds/slots.ts'
import { toNodeAmounts, toRankAmounts } from './bounds/slots.ts'
import { textAt, valueAt } from './columns.ts'
import { outcomeNumbers } from './panels/lanes.ts'

/** A resource of which the free slots of a backend have too little. */
export interface Shortage {
  /**
   * The missing resource. `nodes` means that there is no node. `backend` means that the backend
   * reports no nodes and runs `total` tasks.
   */
  readonly resource: SlotResource | 'nodes' | 'backend'
  /** The requested amount per rank; 0 for labels, nodes and backends. */
  readonly asked: number
  /** The largest amount that is free on one node. */
  readonly free: number
  /** The amount that the largest node has. */
  readonly total: number
  readonly ranks: number
  /** The number of ranks that would now fit on all nodes together. */
  readonly room: number
  /** The labels that a node must have; empty if all nodes have them. */
  readonly labels: Readonly<Record<string, string>>
}

const resources = ['gpus', 'memory', 'cores', 'workers', 'processes'] as const

const mapAmounts = (amount: (kind: HeldResource) => number): Amounts =>
  Object.fromEntries(resources.map((kind) => [kind, amount(kind)])) as Amounts

const isEnough = (there: Amounts, asked: Amounts): boolean =>
  resources.every((kind) => there[kind] >= asked[kind])

const roomIn = (there: Amounts, asked: Amounts): number =>
  Math.min(...resources.map((kind) => countFits(there[kind], asked[kind])))

interface NodeNow {
  readonly node: SlotNode
  readonly size: Amounts
  readonly free: Amounts
}

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
        const size = toNodeAmounts(node, Infinity)
        const usedAmounts = used.get(JSON.stringify([backend, node.nodeId]))?.amounts
        return { node, size, free: mapAmounts((kind) => size[kind] - (usedAmounts?.[kind] ?? 0)) }
      })
  }

  /** Whether tasks start in queue order. They do on a single node that reports its limits. */
  get isOrdered(): boolean {
    const [first] = this.#nodes
    return this.#nodes.length === 1 && Number.isFinite(first?.size.workers)
  }

  isFull(limit: SlotLimit | null): boolean {
    return limit !== null && this.#nodes.every(({ free }) => free[limit] < 1)
  }

  /** Whether the only node on which `request` could ever start is kept free for `other`. */
  isKeptFrom(request: SlotRequest, other: SlotRequest): boolean {
    const freeNodes = this.#withLabelsFor(request).filter(({ free }) =>
      isEnough(free, toRankAmounts(request)),
    )
    const nodes = freeNodes.length > 0 ? freeNodes : this.#couldRun(request)
    const [only] = nodes
    return nodes.length === 1 && only !== undefined && this.#couldRun(other).includes(only)
  }

  hasCommonNode(one: SlotRequest, other: SlotRequest): boolean {
    const nodes = this.#couldRun(other)
    return this.#couldRun(one).some((node) => nodes.includes(node))
  }

  /** Returns `null` if a slot is available or the record does not show what is missing. */
  shortageOf(request: SlotRequest): Shortage | null {
    const { ranks } = request
    const none = { asked: 0, free: 0, total: 0, labels: {}, ranks, room: 0 }
    if (!this.#hasNodes) {
      return this.#running === 0 ? null : { ...none, resource: 'backend', total: this.#running }
    }
    if (this.#nodes.length === 0) return { resource: 'nodes', ...none }
    const labelledNodes = this.#withLabelsFor(request)
    const labels = labelledNodes.length === this.#nodes.length ? {} : request.labels
    if (labelledNodes.length === 0) return { resource: 'labels', ...none, labels }
    const asked = toRankAmounts(request)
    const sum = (room: (node: NodeNow) => number): number =>
      labelledNodes.reduce((all, node) => all + room(node), 0)
    const room = sum(({ free }) => roomIn(free, asked))
    if (room >= ranks) return null
    const isShort = (kind: HeldResource): boolean =>
      sum(({ free }) => countFits(free[kind], asked[kind])) < ranks
    const resource = resources.find(isShort) ?? 'cores'
    return {
      resource,
      asked: asked[resource],
      free: Math.max(...labelledNodes.map(({ free }) => free[resource])),
      total: Math.max(...labelledNodes.map(({ size }) => size[resource])),
      labels,
      ranks,
      room,
    }
  }

  #couldRun(request: SlotRequest): NodeNow[] {
    return this.#withLabelsFor(request).filter(({ size }) => isEnough(size, toRankAmounts(request)))
  }

  #withLabelsFor(request: SlotRequest): NodeNow[] {
    return this.#nodes.filter(({ node }) => hasLabels(node, request))
  }
}

/** The amounts that running attempts hold, by the backend and the id of the node as a JSON pair. */
export function usedByNode({
  states: { lanes, bounds },
}: RunPass): Map<string, { readonly amounts: Amounts; readonly tasks: number }> {
  const used = new Map<string, { readonly amounts: Amounts; readonly tasks: number }>()
  for (let segment = 0; segment < lanes.size; segment++) {
    if (valueAt(lanes.outcome, segment) !== outcomeNumbers.running) continue
    const node = textAt(lanes.nodes, valueAt(lanes.nodeOfLane, valueAt(lanes.lane, segment)))
    const number = valueAt(bounds.requestOfTask, valueAt(lanes.task, segment))
    const request = bounds.requests[number] ?? oneCore
    const before = used.get(node)
    const rankAmounts = toRankAmounts(request)
    const taken = (kind: HeldResource): number =>
      (before?.amounts[kind] ?? 0) + rankAmounts[kind] * request.ranks
    used.set(node, { amounts: mapAmounts(taken), tasks: (before?.tasks ?? 0) + 1 })
  }
  return used
}
