/** Queries about waiting and running jobs of a placement. Pure. */

import type { JobQueue } from '../../../backends/local/job-queue.ts'
import { defaultResources, type ResourceRequest } from '../../../tasks/resources.ts'
import { couldHold } from './job-group.ts'
import { outlives, type PlacementTimes } from './late-jobs.ts'
import { couldRun } from '../../../tasks/resource-fit.ts'
import { couldTake, type Node } from './placement-node.ts'
import type { PlacedJob, Shape } from './shapes.ts'

/** The part of a placement that the queries need. */
export interface PlacementState {
  readonly nodes: readonly Node[]
  readonly shapes: readonly WaitingShape[]
}

type WaitingShape = Omit<Shape<PlacedJob>, 'queue'> & {
  readonly queue: Pick<JobQueue<PlacedJob>, 'length' | 'peek' | 'lowestPriority'>
}

/** Waiting tasks with equal requests; tasks that begin together count as one. */
export interface WaitingWork {
  readonly resources: ResourceRequest
  readonly count: number
  /** Whether the tasks were already sent to busy nodes. Default `false`. */
  readonly isSent?: boolean
}

/** The load of a node. */
export interface NodeLoad {
  readonly isBusy: boolean
  /** The number of jobs that were placed on the node so far. */
  readonly taken: number
}

/** The waiting work, and the load of each node. */
export interface ClusterLoad {
  readonly waiting: readonly WaitingWork[]
  readonly nodes: ReadonlyMap<string, NodeLoad>
}

/** Describes waiting work to agents, which decide whether to return some of their jobs. */
export function toWaitingWork({
  shapes,
  waiting,
  freeCores,
}: Pick<PlacementState, 'shapes'> & { readonly waiting: number; readonly freeCores: number }) {
  // Only tasks of one core are sent ahead.
  const ahead = shapes.filter(({ isDefault }) => isDefault)
  const lowest = ahead.map(({ queue }) => queue.lowestPriority).filter((one) => one !== null)
  // Jobs that are never sent ahead also need room at agents.
  const highest = shapes.flatMap(({ queue }) => queue.peek()?.spec.priority ?? [])
  const range = { lowest: Math.min(...lowest), highest: Math.max(...highest) }
  const priorities = highest.length === 0 ? {} : { waitingPriorities: range }
  return { hasWaiting: waiting > 0, hasIdle: freeCores > 0, ...priorities }
}

export const toLoad = ({ nodes, shapes }: PlacementState): ClusterLoad => ({
  waiting: [
    // Excludes jobs for one specific node.
    ...shapes
      .filter(({ node }) => node === null)
      .map((shape) => ({ resources: toRequest(shape), count: shape.queue.length })),
    ...toSent(nodes),
  ],
  nodes: new Map(nodes.map(({ name, cores, taken }) => [name, { isBusy: cores > 0, taken }])),
})

/** Counts jobs that were sent ahead, with one core each. A leaving node offers 0, but runs jobs. */
function toSent(nodes: readonly Node[]): readonly WaitingWork[] {
  const count = nodes.reduce((sum, { cores, offer, facts, isUsable }) => {
    const isLeaving = !isUsable || offer.cores === 0
    return sum + Math.max(0, cores - (isLeaving ? facts.cores : offer.cores))
  }, 0)
  return count === 0 ? [] : [{ resources: defaultResources, count, isSent: true }]
}

/** Combines the loads of several sessions. */
export function joinLoads(loads: readonly ClusterLoad[]): ClusterLoad {
  const nodes = new Map<string, NodeLoad>()
  for (const [name, { isBusy, taken }] of loads.flatMap((load) => [...load.nodes])) {
    const known = nodes.get(name)
    const sum = taken + (known?.taken ?? 0)
    nodes.set(name, { isBusy: isBusy || known?.isBusy === true, taken: sum })
  }
  return { waiting: loads.flatMap(({ waiting }) => waiting), nodes }
}

/** The request, with the ranks of an MPI program if it has several. */
export function toRequest({ request, group }: Pick<WaitingShape, 'request' | 'group'>) {
  if (group === null) return request
  const { size: ranks, perNode } = group
  return { ...request, ranks, ...(perNode === null ? {} : { ranksPerNode: perNode }) }
}

/**
 * Keys of shapes whose jobs no node of the cluster could run even when idle, each with the nodes
 * that have the resources but do not allow the jobs. With `secondsLeft`, excludes nodes whose
 * remaining time is too short for the first job.
 */
export function findUnplaceable(
  { nodes: all, shapes }: PlacementState,
  secondsLeft: PlacementTimes['secondsLeft'] = () => Infinity,
): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const shape of shapes) {
    const nodes = all.filter(outlives(shape.queue.peek(), { secondsLeft }))
    if (couldHold(nodes, shape)) continue
    // A job for one specific node can only be refused by that node.
    const asked = shape.node === null ? nodes : nodes.filter(({ name }) => name === shape.node)
    // A leaving node may be restarted with other rules.
    const refusing = asked.filter(
      (node) => node.isUsable && couldRun(node.facts, shape.request) && !couldTake(node, shape),
    )
    found.set(
      shape.key,
      refusing.map(({ name }) => name),
    )
  }
  return found
}
