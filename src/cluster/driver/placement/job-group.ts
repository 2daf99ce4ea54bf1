/** Jobs that begin together on shared nodes, such as the ranks of an MPI program. Pure. */

import { roomIn } from '../../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import { couldTake, freeIn, type Node, type Wanted } from './placement-node.ts'

export interface JobGroup<T> {
  readonly jobs: readonly T[]
  /** The number of jobs that each node gets; `null` for any number. */
  readonly perNode: number | null
  /** The only node that may get the jobs; `null` for any. */
  readonly node: string | null
}

export interface GroupShape {
  readonly size: number
  readonly perNode: number | null
}

/** A job that was placed on a node. */
export interface RunningRequest {
  readonly request: ResourceRequest
  /** The remaining run time by the job's own estimate; 0 without an estimate. */
  readonly seconds: number
}

/** Nodes with different values of this label are in different allocations, and share no group. */
export const allocationLabel = 'allocation'

/**
 * Returns the node of each job, with jobs of one node in sequence; `null` if there is no room for
 * all. Prefers few nodes, because the jobs communicate. With `idle`, assumes that nothing is
 * running, but still prefers nodes with little work.
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
    // Sorted by name, so that adjacent ranks are on adjacent nodes.
    if (chosen.length === size) return chosen.toSorted(compareNames)
  }
  return null
}

const { compare } = new Intl.Collator('en', { numeric: true })
const compareNames = (a: Node, b: Node): number => compare(a.name, b.name)

/** A job or a group to be placed. */
type Placeable = Wanted & { readonly group: GroupShape | null }

/** Whether the nodes would have room if they were idle. */
export const couldHold = (nodes: readonly Node[], wanted: Placeable): boolean =>
  wanted.group === null
    ? nodes.some((node) => couldTake(node, wanted))
    : chooseNodes(nodes, wanted, wanted.group, 'idle') !== null

/** Estimates how long a job on a node will still run. */
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

/** The number of such jobs that the node can take. */
export function roomFor(node: Node, wanted: Wanted, when: 'now' | 'idle'): number {
  if (!couldTake(node, wanted)) return 0
  if (when === 'idle') return roomIn(node.facts, wanted.request)
  return node.isUsable ? roomIn(freeIn(node), wanted.request) : 0
}
