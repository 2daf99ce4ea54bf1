/** Chooses nodes for jobs that begin together, such as ranks. Pure functions. */

import { maxRequests } from '../../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import { couldRunJob, freeAmounts, type Node, type JobRequirements } from './placement-node.ts'

export interface JobGroup<T> {
  readonly jobs: readonly T[]
  /** The number of jobs that each node gets; `null` for any number. */
  readonly jobsPerNode: number | null
  readonly node: string | null
}

export interface GroupShape {
  readonly size: number
  readonly jobsPerNode: number | null
}

export interface RunningRequest {
  readonly request: ResourceRequest
  /** The remaining run time in seconds, as estimated by the job; 0 without an estimate. */
  readonly seconds: number
}

/** The label that names the allocation of a node. All jobs of a group are in one allocation. */
export const allocationLabel = 'allocation'

/**
 * Returns the node of each job, or `null` if there is no room for all. Prefers few nodes, because
 * the jobs communicate. With `idle`, assumes that nothing is running.
 */
export function chooseNodes(
  nodes: readonly Node[],
  wanted: JobRequirements,
  shape: GroupShape,
  when: 'now' | 'idle',
): readonly Node[] | null {
  for (const together of Map.groupBy(
    nodes,
    ({ facts }) => facts.labels[allocationLabel],
  ).values()) {
    const chosen = chooseInAllocation(together, wanted, shape, when)
    if (chosen !== null) return chosen
  }
  return null
}

function chooseInAllocation(
  nodes: readonly Node[],
  wanted: JobRequirements,
  { size, jobsPerNode }: GroupShape,
  when: 'now' | 'idle',
): readonly Node[] | null {
  const nodeRooms = nodes
    .map((node) => {
      const room = countRoom(node, wanted, when)
      return { node, room, rank: when === 'idle' ? node.facts.cores - node.cores : room }
    })
    .filter(({ room }) => room >= (jobsPerNode ?? 1))
    .toSorted((a, b) => b.rank - a.rank || compareNames(a.node, b.node))
  const chosen: Node[] = []
  for (const { node, room } of nodeRooms) {
    const count = Math.min(jobsPerNode ?? room, size - chosen.length)
    for (let at = 0; at < count; at++) chosen.push(node)
    // Sorting by name places adjacent ranks on adjacent nodes.
    if (chosen.length === size) return chosen.toSorted(compareNames)
  }
  return null
}

const { compare } = new Intl.Collator('en', { numeric: true })
const compareNames = (a: Node, b: Node): number => compare(a.name, b.name)

type Placeable = JobRequirements & { readonly group: GroupShape | null }

/** Whether the nodes would have room if they were idle. */
export const couldPlace = (nodes: readonly Node[], wanted: Placeable): boolean =>
  wanted.group === null
    ? nodes.some((node) => couldRunJob(node, wanted))
    : chooseNodes(nodes, wanted, wanted.group, 'idle') !== null

export function toRunningRequest(
  one: {
    readonly spec: { readonly resources: ResourceRequest }
    readonly startedMs: number | null
    readonly sinceMs: number
  },
  nowMs: number,
): RunningRequest {
  const { resources: request } = one.spec
  const secondsLeft = (request.seconds ?? 0) - (nowMs - (one.startedMs ?? one.sinceMs)) / 1000
  return { request, seconds: Math.max(0, secondsLeft) }
}

/** Returns how many such jobs the node has room for, now or if it were idle. */
export function countRoom(node: Node, wanted: JobRequirements, when: 'now' | 'idle'): number {
  if (!couldRunJob(node, wanted)) return 0
  if (when === 'idle') return maxRequests(node.facts, wanted.request)
  return node.isUsable ? maxRequests(freeAmounts(node), wanted.request) : 0
}
