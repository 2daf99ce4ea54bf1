/** Determines why an allocation can never run an MPI task. Pure. */

import type { NodeCapacity, Refusal } from '../../backends/backend.ts'
import { allocationLabel } from '../../cluster/protocol/placement/job-group.ts'
import { describeNode, maxRanks } from '../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'

/** Returns why no allocation can run the task; `null` if one can, or if nodes may start later. */
export function refuseRanks(
  spec: TaskSpec,
  nodes: readonly NodeCapacity[],
  {
    notes = [],
    mayStartLater = false,
  }: { notes?: readonly string[]; mayStartLater?: boolean } = {},
): Refusal | null {
  const { resources } = spec
  const { ranks, ranksPerNode } = resources
  if (ranks === 1) return null
  if (spec.kind !== 'program') {
    const message = 'only a program has ranks; a function runs in one process'
    return { field: 'resources.ranks', message }
  }
  if (ranksPerNode !== undefined && ranks % ranksPerNode !== 0) {
    const message = `${ranks} ranks cannot be divided into ${ranksPerNode} per node`
    return { field: 'resources.ranksPerNode', message }
  }
  for (const file of Object.values(spec.captureStdio ?? {})) {
    if (file === undefined || file.includes('%r')) continue
    const message = `${file} would be written by ${ranks} ranks; %r stands for the rank in its name`
    return { field: 'captureStdio', message }
  }
  return mayStartLater ? null : refuseMissingSlots(resources, nodes, notes)
}

function refuseMissingSlots(
  resources: ResourceRequest,
  nodes: readonly NodeCapacity[],
  notes: readonly string[],
): Refusal | null {
  const { ranks, ranksPerNode = 1 } = resources
  const allocations = Map.groupBy(nodes, (node) => node.labels?.[allocationLabel]).values()
  const capacities = Array.from(allocations, (allocationNodes) =>
    allocationNodes.reduce((sum, node) => sum + maxRanks(node, resources), 0),
  )
  const capacity = Math.max(0, ...capacities)
  if (capacity >= ranks) return null
  const shape = ranksPerNode === 1 ? '' : `, ${ranksPerNode} per node`
  const wantedText = `${ranks} ranks of ${describeNode(resources)}${shape}`
  const existingNodes = countEqual(nodes.map(describeNode)).join('; ')
  const where = nodes.length === 0 ? 'no node is there' : `there are ${existingNodes}`
  const message = [`there is room for ${capacity} of ${wantedText}; ${where}`, ...notes].join('; ')
  return { field: 'resources.ranks', message }
}

/** Counts equal texts. Returns texts such as `4 nodes with …`. */
function countEqual(texts: readonly string[]): string[] {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return Array.from(
    counts,
    ([text, count]) => `${count === 1 ? 'a node' : `${count} nodes`} with ${text}`,
  )
}
