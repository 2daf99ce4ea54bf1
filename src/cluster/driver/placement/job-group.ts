/** Jobs that begin together on nodes that they share, such as the ranks of an MPI program. Pure. */

import type { ResourceRequest } from '../../../tasks/resources.ts'
import { couldTake, type Node, use, type Wanted } from './placement-node.ts'

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

/** What is placed: a job or a group, and where it should not be. */
type Placeable = Wanted & { readonly avoid: string | null; readonly group: GroupShape | null }

/** Whether the nodes could take it, when they are idle. */
export const couldHold = (nodes: readonly Node[], wanted: Placeable): boolean =>
  wanted.group === null
    ? nodes.some((node) => couldTake(node, wanted))
    : chooseNodes(nodes, wanted, wanted.group, 'idle') !== null

/**
 * The nodes where it will probably begin, with how many of its jobs each will get. Empty if there
 * are none.
 */
export function mostFree(nodes: readonly Node[], wanted: Placeable): ReadonlyMap<Node, number> {
  const { avoid, group } = wanted
  const usable = nodes.filter(
    (node) => node.isUsable && node.name !== avoid && couldTake(node, wanted),
  )
  const counts = new Map<Node, number>()
  if (group !== null) {
    const chosen = chooseNodes(usable, wanted, group, 'idle') ?? []
    for (const node of chosen) counts.set(node, (counts.get(node) ?? 0) + 1)
  } else if (usable[0] !== undefined) {
    const free = ({ facts, cores }: Node): number => facts.cores - cores
    const isFreer = (a: Node, b: Node): boolean => free(a) > free(b)
    counts.set(
      usable.reduce((best, node) => (isFreer(node, best) ? node : best), usable[0]),
      1,
    )
  }
  return counts
}

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

/** Nodes that are kept free for what waits. */
export interface Reservation<Shape> {
  readonly shape: Shape
  /** With how many of its jobs each will get. */
  readonly nodes: ReadonlyMap<Node, number>
}

const noNodes: ReadonlyMap<Node, number> = new Map()

/** Reserved nodes that a job may not use: it would not have ended when they are needed. */
export function keptFrom(
  seconds: number | undefined,
  reserved: Reservation<Wanted> | null,
  running: (node: string) => readonly RunningRequest[],
): ReadonlyMap<Node, number> {
  if (reserved === null) return noNodes
  if (seconds === undefined) return reserved.nodes
  const endsBefore = Array.from(reserved.nodes).some(([node, count]) => {
    return secondsUntilRoom(node, reserved.shape, count, running(node.name)) >= seconds
  })
  return endsBefore ? noNodes : reserved.nodes
}

/** How long it takes at least until a node has room for so many. */
function secondsUntilRoom(
  node: Node,
  wanted: Wanted,
  count: number,
  running: readonly RunningRequest[],
): number {
  const after = { ...node }
  let seconds = 0
  for (const one of running.toSorted((a, b) => a.seconds - b.seconds)) {
    if (roomFor(after, wanted, 'now') >= count) break
    seconds = Math.max(seconds, one.seconds)
    use(after, one.request, -1)
  }
  return seconds
}

/** How many such jobs it takes. */
function roomFor(node: Node, wanted: Wanted, when: 'now' | 'idle'): number {
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
