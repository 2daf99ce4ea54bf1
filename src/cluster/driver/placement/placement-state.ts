/** What a placement can be asked about what waits and what runs. Pure. */

import type { JobQueue } from '../../../backends/local/job-queue.ts'
import { defaultResources, type ResourceRequest } from '../../../tasks/resources.ts'
import { couldHold } from './job-group.ts'
import { lastsFor, type PlacementTimes } from './late-jobs.ts'
import { couldRun, couldTake, type Node } from './placement-node.ts'
import type { PlacedJob, Shape } from './shapes.ts'

/** The part of a placement that is asked. */
export interface PlacementState {
  readonly nodes: readonly Node[]
  readonly shapes: readonly WaitingShape[]
}

type WaitingShape = Omit<Shape<PlacedJob>, 'queue'> & {
  readonly queue: Pick<JobQueue<PlacedJob>, 'length' | 'peek' | 'lowestPriority'>
}

/** Tasks that wait and ask for the same; those that begin together count as one. */
export interface WaitingWork {
  readonly resources: ResourceRequest
  readonly count: number
  /** Nodes have them already, and are busy with others. Default: no node has them. */
  readonly isSent?: boolean
}

/** What a node has to do. */
export interface NodeLoad {
  readonly isBusy: boolean
  /** How many jobs it has got so far. */
  readonly taken: number
}

/** What waits for nodes, and what these do. */
export interface ClusterLoad {
  readonly waiting: readonly WaitingWork[]
  readonly nodes: ReadonlyMap<string, NodeLoad>
}

/** What agents are told of the work that waits: whether to hand some of theirs back. */
export function toWaitingWork({
  shapes,
  waiting,
  freeCores,
}: Pick<PlacementState, 'shapes'> & { readonly waiting: number; readonly freeCores: number }) {
  // Only tasks of one core are sent ahead.
  const ahead = shapes.filter(({ isDefault }) => isDefault)
  const lowest = ahead.map(({ queue }) => queue.lowestPriority).filter((one) => one !== null)
  // What does not wait at agents needs their room as well.
  const highest = shapes.flatMap(({ queue }) => queue.peek()?.spec.priority ?? [])
  const range = { lowest: Math.min(...lowest), highest: Math.max(...highest) }
  const told = highest.length === 0 ? {} : { waitingPriorities: range }
  return { hasWaiting: waiting > 0, hasIdle: freeCores > 0, ...told }
}

export const toLoad = ({ nodes, shapes }: PlacementState): ClusterLoad => ({
  waiting: [
    // What is for one node alone waits for no other.
    ...shapes
      .filter(({ node }) => node === null)
      .map((shape) => ({ resources: toRequest(shape), count: shape.queue.length })),
    ...toSent(nodes),
  ],
  nodes: new Map(nodes.map(({ name, cores, taken }) => [name, { isBusy: cores > 0, taken }])),
})

/** Only tasks of one core are sent ahead. A node that is leaving offers nothing, and runs them. */
function toSent(nodes: readonly Node[]): readonly WaitingWork[] {
  const count = nodes.reduce((sum, { cores, offer, facts, isUsable }) => {
    const isLeaving = !isUsable || offer.cores === 0
    return sum + Math.max(0, cores - (isLeaving ? facts.cores : offer.cores))
  }, 0)
  return count === 0 ? [] : [{ resources: defaultResources, count, isSent: true }]
}

/** Of several sessions. */
export function joinLoads(loads: readonly ClusterLoad[]): ClusterLoad {
  const nodes = new Map<string, NodeLoad>()
  for (const [name, { isBusy, taken }] of loads.flatMap((load) => [...load.nodes])) {
    const known = nodes.get(name)
    const sum = taken + (known?.taken ?? 0)
    nodes.set(name, { isBusy: isBusy || known?.isBusy === true, taken: sum })
  }
  return { waiting: loads.flatMap(({ waiting }) => waiting), nodes }
}

/** With the ranks of an MPI program, where there are several. */
export function toRequest({ request, group }: Pick<WaitingShape, 'request' | 'group'>) {
  if (group === null) return request
  const { size: ranks, perNode } = group
  return { ...request, ranks, ...(perNode === null ? {} : { ranksPerNode: perNode }) }
}

/**
 * Names of what is asked for by jobs that no node of this cluster could run, whatever else it runs;
 * with the nodes that have what it takes, but do not allow it. With `secondsLeft`, nodes do not
 * count that are gone before the first of the jobs has ended.
 */
export function findUnplaceable(
  { nodes: all, shapes }: PlacementState,
  secondsLeft: PlacementTimes['secondsLeft'] = () => Infinity,
): Map<string, string[]> {
  const found = new Map<string, string[]>()
  for (const shape of shapes) {
    const nodes = all.filter(lastsFor(shape.queue.peek(), { secondsLeft }))
    if (couldHold(nodes, shape)) continue
    // Other nodes do not refuse what is for one of them alone.
    const asked = shape.node === null ? nodes : nodes.filter(({ name }) => name === shape.node)
    const refusing = asked.filter(
      (node) => couldRun(node.facts, shape.request) && !couldTake(node, shape),
    )
    found.set(
      shape.key,
      refusing.map(({ name }) => name),
    )
  }
  return found
}
