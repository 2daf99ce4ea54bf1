/** Why an allocation will never run an MPI task. Pure. */

import type { NodeCapacity, Refusal } from '../../backends/backend.ts'
import { roomIn } from '../../cluster/driver/placement/job-group.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'

/**
 * `null` for a task without ranks, for one that fits into what the nodes have, and for one that
 * others `mayCome` for. `held` says what is counted out.
 */
export function refuseRanks(
  spec: TaskSpec,
  nodes: readonly NodeCapacity[],
  { held = [], mayCome = false }: { held?: readonly string[]; mayCome?: boolean } = {},
): Refusal | null {
  const { resources } = spec
  const { ranks, ranksPerNode } = resources
  if (ranks === 1) return null
  if (spec.kind !== 'program') {
    const message = 'only a program has ranks; a function runs in one process'
    return { field: 'resources.ranks', message }
  }
  if (ranksPerNode !== undefined && ranks % ranksPerNode !== 0) {
    const message = `${ranks} ranks cannot be shared out by ${ranksPerNode} a node`
    return { field: 'resources.ranksPerNode', message }
  }
  for (const file of Object.values(spec.captureStdio ?? {})) {
    if (file === undefined || file.includes('%r')) continue
    const message = `${file} would be written by ${ranks} ranks; %r stands for the rank in its name`
    return { field: 'captureStdio', message }
  }
  return mayCome ? null : refuseTooMany(resources, nodes, held)
}

function refuseTooMany(
  resources: ResourceRequest,
  nodes: readonly NodeCapacity[],
  held: readonly string[],
): Refusal | null {
  const { ranks, ranksPerNode = 1 } = resources
  const labels = Object.entries(resources.labels ?? {})
  const rooms = nodes.map((node) => {
    const isLabelled = labels.every(([key, value]) => node.labels?.[key] === value)
    return isLabelled ? roomIn(node, resources) : 0
  })
  const most = resources.ranksPerNode ?? Infinity
  const usable = rooms.filter((room) => room >= ranksPerNode).map((room) => Math.min(room, most))
  const total = usable.reduce((sum, room) => sum + room, 0)
  if (total >= ranks) return null
  const shape = ranksPerNode === 1 ? '' : `, ${ranksPerNode} a node`
  const wanted = `${ranks} ranks of ${describe(resources)}${shape}`
  const there = groupEqual(nodes.map(describe)).join('; ')
  const message = [`there is room for ${total} of ${wanted}; there are ${there}`, ...held].join(
    '; ',
  )
  return { field: 'resources.ranks', message }
}

function describe({ cores, gpus, memoryMb, labels = {} }: Described): string {
  const own = Object.entries(labels).map(([key, value]) => `${key}=${value}`)
  return [`${cores} cores`, `${gpus} GPUs`, `${memoryMb} MB`, ...own].join(', ')
}

type Described = Pick<NodeCapacity, 'cores' | 'gpus' | 'memoryMb' | 'labels'>

/** `4 nodes with …` for equal nodes. */
function groupEqual(texts: readonly string[]): string[] {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return Array.from(counts, ([text, count]) => `${count} nodes with ${text}`)
}
