/** What Slurm tells of the nodes that allocations may get, before there is one. */

import { ValueError } from '../../foundation/errors.ts'
import type { AllocatedNode } from '../allocation.ts'
import {
  mayHaveFeatures,
  nodeFormat,
  parsePartitionNodes,
  type PartitionNode,
} from '../slurm/partition-nodes.ts'
import { type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import type { ResolvedAllocations } from './pilot-options.ts'
import type { PilotCandidate, PilotKind } from './pilot-plan.ts'

/** Allocations of one kind, and what is known of its nodes. */
export interface PilotSource {
  readonly options: ResolvedAllocations
  readonly kind: PilotKind
  /** One of them, to find an address that they reach. */
  readonly near: AllocatedNode
}

/** Asks once for all. Throws `ValueError` for a kind that could never be there. */
export async function findSources(
  given: readonly ResolvedAllocations[],
  commands: SlurmCommands,
  graceSeconds: number,
): Promise<PilotSource[]> {
  const args = ['-h', '-N', '-o', nodeFormat]
  const output = await commands.ask('sinfo', ...args)
  const nodes = parsePartitionNodes(output)
  if (nodes === null) throw unexpectedOutput(`sinfo ${args.join(' ')}`, output)
  return given.map((options) => toSource(options, nodes, graceSeconds))
}

function toSource(
  options: ResolvedAllocations,
  nodes: readonly PartitionNode[],
  graceSeconds: number,
): PilotSource {
  const { field, request, labels, timeSeconds } = options
  const { gpusPerNode = 0, constraint = null } = request
  const inPartition = nodesOf(options, nodes)
  const fitting = inPartition.filter(
    (node) => node.gpus >= gpusPerNode && mayHaveFeatures(node, constraint),
  )
  const [first] = fitting
  const count = new Set(fitting.map(({ name }) => name)).size
  if (first === undefined || count < options.nodes) {
    const which = [...new Set(inPartition.map(({ partition }) => partition))].join(', ')
    throw new ValueError(
      `${field}: ${options.nodes} nodes with ${gpusPerNode} GPUs each are asked for; ` +
        `partition ${which} has ${count} that fit`,
      { field },
    )
  }
  const candidates = fitting.map(({ cores, memoryMb, partition }) => ({
    cores,
    gpus: gpusPerNode,
    memoryMb,
    labels: { ...labels, partition },
  }))
  const usableSeconds = timeSeconds === null ? Infinity : timeSeconds - graceSeconds
  return {
    options,
    kind: { ...options, usableSeconds, candidates: distinct(candidates) },
    near: { name: first.name, address: first.address, memoryMb: null },
  }
}

/** Of the partitions that it names, else of the default one. */
function nodesOf(
  { field, request }: ResolvedAllocations,
  nodes: readonly PartitionNode[],
): readonly PartitionNode[] {
  const named = request.partition ?? process.env['SBATCH_PARTITION']
  if (named === undefined) {
    const inDefault = nodes.filter(({ isDefault }) => isDefault)
    return inDefault.length > 0 ? inDefault : nodes
  }
  const names = named.split(',')
  const found = nodes.filter(({ partition }) => names.includes(partition))
  if (found.length > 0) return found
  const known = [...new Set(nodes.map(({ partition }) => partition))].join(', ')
  const at = `${field}.partition`
  throw new ValueError(`${at}: Slurm has no partition ${named}; it has ${known}`, { field: at })
}

function distinct(candidates: readonly PilotCandidate[]): readonly PilotCandidate[] {
  return [...new Map(candidates.map((one) => [JSON.stringify(one), one])).values()]
}
