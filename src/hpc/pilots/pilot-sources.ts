/** Queries Slurm for the nodes that allocations may get. */

import { ValueError } from '../../foundation/errors.ts'
import type { AllocatedNode } from '../allocation.ts'
import {
  mayHaveFeatures,
  nodeFormat,
  parsePartitionNodes,
  type PartitionNode,
} from '../slurm/slurm-output.ts'
import { type SlurmCommands, unexpectedOutput } from '../slurm/slurm-commands.ts'
import { parseTimeLimit } from '../slurm/slurm-output.ts'
import type { ResolvedAllocations } from './pilot-options.ts'
import type { PilotKind } from './pilot-plan.ts'

/** One kind of allocation, and what is known about its nodes. */
export interface PilotSource {
  readonly options: ResolvedAllocations
  readonly kind: PilotKind
  /** One of the nodes. It is used to find an address of this machine that the nodes can reach. */
  readonly exampleNode: AllocatedNode
}

/** Queries Slurm once for all kinds. Throws a `ValueError` for a kind that cannot exist. */
export async function findSources(
  given: readonly ResolvedAllocations[],
  commands: SlurmCommands,
  graceSeconds: number,
): Promise<PilotSource[]> {
  const args = ['-h', '-N', '-o', nodeFormat]
  const output = await commands.query('sinfo', ...args)
  const nodes = parsePartitionNodes(output)
  if (nodes === null) throw unexpectedOutput(`sinfo ${args.join(' ')}`, output)
  return given.map((options) => toSource(options, nodes, graceSeconds))
}

function toSource(
  options: ResolvedAllocations,
  nodes: readonly PartitionNode[],
  graceSeconds: number,
): PilotSource {
  const { field, request, labels } = options
  const { gpusPerNode = 0, constraint = null } = request
  const inPartition = selectNodes(options, nodes)
  const fitting = inPartition.filter(
    (node) => node.gpus >= gpusPerNode && mayHaveFeatures(node, constraint),
  )
  const [first] = fitting
  const count = new Set(fitting.map(({ name }) => name)).size
  if (first === undefined || count < options.nodes) {
    throw new ValueError(
      `${field}: ${options.nodes} nodes with ${gpusPerNode} GPUs each are requested; ` +
        `partition ${joinPartitions(inPartition)} has ${count} that fit`,
      { field },
    )
  }
  const limit = findTimeLimit(options, fitting, graceSeconds)
  const withLongLimit = fitting.filter(({ maxSeconds }) => maxSeconds >= limit)
  // Slurm skips partitions whose time limits are too short, so their nodes are left out.
  const candidates = (withLongLimit.length > 0 ? withLongLimit : fitting).map((node) => ({
    cores: node.cores,
    gpus: gpusPerNode,
    memoryMb: node.memoryMb,
    labels: { ...labels, partition: node.partition },
  }))
  return {
    options,
    kind: {
      ...options,
      usableSeconds: toUsableSeconds(limit, graceSeconds),
      candidates: [...new Map(candidates.map((one) => [JSON.stringify(one), one])).values()],
    },
    exampleNode: { name: first.name, address: first.address, memoryMb: null },
  }
}

function findTimeLimit(
  { field, timeSeconds }: ResolvedAllocations,
  nodes: readonly PartitionNode[],
  graceSeconds: number,
): number {
  const limitVariable = parseTimeLimit(process.env['SBATCH_TIMELIMIT'] ?? '')
  if (timeSeconds !== null) return timeSeconds
  const limit =
    limitVariable === undefined
      ? Math.min(...nodes.map(({ defaultSeconds }) => defaultSeconds))
      : (limitVariable ?? Infinity)
  const min = 2 * graceSeconds
  if (limit >= min) return limit
  const at = `${field}.timeSeconds`
  const where =
    limitVariable === undefined ? `partition ${joinPartitions(nodes)}` : 'SBATCH_TIMELIMIT'
  const text = `without it the limit is ${limit} s, by ${where}: less than twice graceSeconds`
  throw new ValueError(`${at}: ${text} (${graceSeconds})`, {
    field: at,
    hint: `Give at least ${min} s, or a shorter graceSeconds.`,
  })
}

/** The time that is reserved for the start of agents, and not available to tasks. */
const agentStartSeconds = 30

function toUsableSeconds(limit: number, graceSeconds: number): number {
  const seconds = limit - graceSeconds
  return seconds - Math.min(agentStartSeconds, seconds / 2)
}

const joinPartitions = (nodes: readonly PartitionNode[]): string =>
  [...new Set(nodes.map(({ partition }) => partition))].join(', ')

function selectNodes(
  { field, request }: ResolvedAllocations,
  nodes: readonly PartitionNode[],
): readonly PartitionNode[] {
  const named = request.partition ?? process.env['SBATCH_PARTITION']
  if (named === undefined) {
    const inDefault = nodes.filter(({ isDefault }) => isDefault)
    return inDefault.length > 0 ? inDefault : nodes
  }
  const names = named.split(',')
  const unknown = names.filter((name) => nodes.every(({ partition }) => partition !== name))
  if (unknown.length === 0) return nodes.filter(({ partition }) => names.includes(partition))
  const at = `${field}.partition`
  const text = `Slurm has no partition ${unknown.join(', ')}; it has ${joinPartitions(nodes)}`
  throw new ValueError(`${at}: ${text}`, { field: at, got: named })
}
