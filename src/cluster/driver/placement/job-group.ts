/** Jobs that begin together on nodes that they share, such as the ranks of an MPI program. Pure. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import { couldTake, type Node, type Wanted } from './placement-node.ts'

export interface JobGroup<T> {
  readonly jobs: readonly T[]
  /** How many of them each node gets; `null` where any number may share one. */
  readonly perNode: number | null
  /** The only node that may get them; `null` for any. */
  readonly node: string | null
}

export interface GroupShape {
  readonly size: number
  readonly perNode: number | null
}

/** A job that a node has. */
export interface RunningRequest {
  readonly request: ResourceRequest
  /** How long it will run on, by what it said; 0 if it said nothing. */
  readonly seconds: number
}

/** Nodes with different values of this label were given separately: no group spans them. */
export const allocationLabel = 'allocation'

/**
 * The node of each job, those of a node one after another; `null` if there is no room for all. Few
 * nodes are preferred: the jobs talk to each other. `idle` counts as if nothing ran, and prefers
 * nodes where little does.
 */
export function chooseNodes(
  nodes: readonly Node[],
  wanted: Wanted,
  shape: GroupShape,
  when: 'now' | 'idle',
): readonly Node[] | null {
  for (const together of Map.groupBy(
    nodes,
    ({ facts }) => facts.labels[allocationLabel],
  ).values()) {
    const chosen = chooseTogether(together, wanted, shape, when)
    if (chosen !== null) return chosen
  }
  return null
}

function chooseTogether(
  nodes: readonly Node[],
  wanted: Wanted,
  { size, perNode }: GroupShape,
  when: 'now' | 'idle',
): readonly Node[] | null {
  const rooms = nodes
    .map((node) => {
      const room = roomFor(node, wanted, when)
      return { node, room, rank: when === 'idle' ? node.facts.cores - node.cores : room }
    })
    .filter(({ room }) => room >= (perNode ?? 1))
    .toSorted((a, b) => b.rank - a.rank || compareNames(a.node, b.node))
  const chosen: Node[] = []
  for (const { node, room } of rooms) {
    const count = Math.min(perNode ?? room, size - chosen.length)
    for (let at = 0; at < count; at++) chosen.push(node)
    // By name: ranks of neighbours are neighbours.
    if (chosen.length === size) return chosen.toSorted(compareNames)
  }
  return null
}

const { compare } = new Intl.Collator('en', { numeric: true })
const compareNames = (a: Node, b: Node): number => compare(a.name, b.name)

/** What is placed: a job or a group. */
type Placeable = Wanted & { readonly group: GroupShape | null }

/** Whether the nodes could take it, when they are idle. */
export const couldHold = (nodes: readonly Node[], wanted: Placeable): boolean =>
  wanted.group === null
    ? nodes.some((node) => couldTake(node, wanted))
    : chooseNodes(nodes, wanted, wanted.group, 'idle') !== null

/** How long one that is at a node will run on. */
export function toRunning(
  one: {
    readonly spec: { readonly resources: ResourceRequest }
    readonly startedMs: number | null
    readonly sinceMs: number
  },
  nowMs: number,
): RunningRequest {
  const { resources: request } = one.spec
  const left = (request.seconds ?? 0) - (nowMs - (one.startedMs ?? one.sinceMs)) / 1000
  return { request, seconds: Math.max(0, left) }
}

/** How many such jobs it takes. */
export function roomFor(node: Node, wanted: Wanted, when: 'now' | 'idle'): number {
  const { facts, offer } = node
  const { request } = wanted
  if (!couldTake(node, wanted)) return 0
  if (when === 'idle') return roomIn(facts, request)
  if (!node.isUsable) return 0
  // A node that is idle may be used whole, whatever the share is.
  const isFree = node.cores === 0 && offer.cores > 0
  return roomIn(
    {
      cores: isFree ? facts.cores : offer.cores - node.cores,
      gpus: facts.gpus - node.gpus,
      memoryMb: facts.memoryMb - node.memoryMb,
    },
    request,
  )
}

type Amounts = Pick<ResourceRequest, 'cores' | 'gpus' | 'memoryMb'>

/** How many requests fit into what is there. */
export function roomIn(have: Amounts, { cores, gpus, memoryMb }: Amounts): number {
  const counts = [
    Math.floor(have.cores / cores),
    gpus === 0 ? Infinity : Math.floor(have.gpus / gpus),
    memoryMb === 0 ? Infinity : Math.floor(have.memoryMb / memoryMb),
  ]
  return Math.max(0, Math.min(...counts))
}
