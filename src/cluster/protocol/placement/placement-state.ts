/** Describes the waiting and running jobs of a placement. Pure functions. */

import { defaultResources, type ResourceRequest } from '../../../tasks/resources.ts'
import { couldPlace } from './job-group.ts'
import { outlives, type PlacementTimes } from './late-jobs.ts'
import { canRun } from '../../../tasks/resource-fit.ts'
import { couldRunJob, type Node } from './placement-node.ts'
import type { WaitingShape } from './shapes.ts'

export interface PlacementState {
  readonly nodes: readonly Node[]
  readonly shapes: readonly WaitingShape[]
}

/** Waiting tasks that request the same resources. Tasks that begin together count as one. */
export interface WaitingWork {
  readonly resources: ResourceRequest
  readonly count: number
  /** Whether the tasks were already sent to busy nodes. Default `false`. */
  readonly isSent?: boolean
}

export interface NodeLoad {
  readonly isBusy: boolean
  /** The number of jobs that were placed on the node so far. */
  readonly taken: number
}

export interface ClusterLoad {
  readonly waiting: readonly WaitingWork[]
  readonly nodes: ReadonlyMap<string, NodeLoad>
}

/** Describes the waiting work for a heartbeat. Agents use it to decide whether to return jobs. */
export function toWaitingWork({
  shapes,
  waiting,
  freeCores,
}: Pick<PlacementState, 'shapes'> & { readonly waiting: number; readonly freeCores: number }) {
  // Only tasks that request one core are sent ahead to wait at agents.
  const ahead = shapes.filter(({ isDefault }) => isDefault)
  const lowest = ahead.map(({ queue }) => queue.lowestPriority).filter((one) => one !== null)
  // Includes the priorities of jobs that are never sent ahead, because they need room at agents,
  // too.
  const highest = shapes.flatMap(({ queue }) => queue.peek()?.spec.priority ?? [])
  const range = { lowest: Math.min(...lowest), highest: Math.max(...highest) }
  const priorities = highest.length === 0 ? {} : { waitingPriorities: range }
  return { hasWaiting: waiting > 0, hasIdle: freeCores > 0, ...priorities }
}

export const toLoad = ({ nodes, shapes }: PlacementState): ClusterLoad => ({
  waiting: [
    ...shapes
      .filter(({ node }) => node === null)
      .map((shape) => ({ resources: toResourceRequest(shape), count: shape.queue.length })),
    ...toSentWork(nodes),
  ],
  nodes: new Map(
    nodes.map(({ name, cores, placedJobs }) => [name, { isBusy: cores > 0, taken: placedJobs }]),
  ),
})

/**
 * The jobs that wait at nodes, counted as one-core jobs. A leaving node offers no cores, but its
 * jobs still run.
 */
function toSentWork(nodes: readonly Node[]): readonly WaitingWork[] {
  const count = nodes.reduce((sum, { cores, offer, facts, isUsable }) => {
    const isLeaving = !isUsable || offer.cores === 0
    return sum + Math.max(0, cores - (isLeaving ? facts.cores : offer.cores))
  }, 0)
  return count === 0 ? [] : [{ resources: defaultResources, count, isSent: true }]
}

export function mergeLoads(loads: readonly ClusterLoad[]): ClusterLoad {
  const nodes = new Map<string, NodeLoad>()
  for (const [name, { isBusy, taken }] of loads.flatMap((load) => [...load.nodes])) {
    const known = nodes.get(name)
    const sum = taken + (known?.taken ?? 0)
    nodes.set(name, { isBusy: isBusy || known?.isBusy === true, taken: sum })
  }
  return { waiting: loads.flatMap(({ waiting }) => waiting), nodes }
}

/** Returns the request of a shape. For a group, it includes the number of ranks. */
export function toResourceRequest({ request, group }: Pick<WaitingShape, 'request' | 'group'>) {
  if (group === null) return request
  const { size: ranks, jobsPerNode } = group
  return { ...request, ranks, ...(jobsPerNode === null ? {} : { ranksPerNode: jobsPerNode }) }
}

/**
 * Finds the shapes that no node could run, even if it were idle, and the nodes that have the
 * resources but do not allow the jobs. `secondsLeft` excludes nodes with too little time.
 */
export function findUnplaceable(
  { nodes: all, shapes }: PlacementState,
  secondsLeft: PlacementTimes['secondsLeft'] = () => Infinity,
): Map<string, string[]> {
  const unplaceable = new Map<string, string[]>()
  for (const shape of shapes) {
    const nodes = all.filter(outlives(shape.queue.peek(), { secondsLeft }))
    if (couldPlace(nodes, shape)) continue
    // A job for one specific node can only be refused by that node.
    const candidates = shape.node === null ? nodes : nodes.filter(({ name }) => name === shape.node)
    // A node that is leaving does not count, because it may be restarted with other rules.
    const refusing = candidates.filter(
      (node) => node.isUsable && canRun(node.facts, shape.request) && !couldRunJob(node, shape),
    )
    unplaceable.set(
      shape.key,
      refusing.map(({ name }) => name),
    )
  }
  return unplaceable
}
