/** Parses what `sinfo` prints about the nodes of a partition, in all versions. Pure. */

import { parseTimeLimit } from './time-limit.ts'

/** Fields that every version of `sinfo` has. */
export const nodeFormat = '%n|%o|%c|%m|%G|%f|%P|%L|%l'

export interface PartitionNode {
  readonly name: string
  readonly address: string
  readonly cores: number
  readonly memoryMb: number
  readonly gpus: number
  /** The features that `--constraint` can ask for. */
  readonly features: readonly string[]
  readonly partition: string
  /** Whether jobs that name no partition use this one. */
  readonly isDefault: boolean
  /** The time limit of jobs that set none; `Infinity` without one. */
  readonly defaultSeconds: number
  /** The longest time limit of a job; `Infinity` without one. */
  readonly maxSeconds: number
}

/** Parses lines of `sinfo -h -N -o FORMAT`; `null` if one of them is malformed. */
export function parsePartitionNodes(text: string): readonly PartitionNode[] | null {
  const nodes = text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .map(parseNode)
  return nodes.every((node) => node !== null) ? nodes : null
}

function parseNode(line: string): PartitionNode | null {
  const fields = line.trim().split('|')
  const [name = '', address = '', cores, memory, gres = '', features = '', partition = ''] = fields
  const maxSeconds = parseTimeLimit(fields[8] ?? '')
  // If different nodes are printed together, their sizes end with a plus; such lines are rejected.
  if (fields.length !== 9 || maxSeconds === undefined) return null
  if (!/^\d+$/.test(cores ?? '') || !/^\d+$/.test(memory ?? '')) return null
  return {
    name,
    address,
    cores: Number(cores),
    memoryMb: Number(memory),
    gpus: countGpus(gres),
    features: features === '(null)' ? [] : features.split(','),
    partition: partition.replace(/\*$/, ''),
    isDefault: partition.endsWith('*'),
    // A partition without a default (`n/a`) uses its longest limit.
    defaultSeconds: parseTimeLimit(fields[7] ?? '') ?? maxSeconds ?? Infinity,
    maxSeconds: maxSeconds ?? Infinity,
  }
}

/**
 * Parses texts such as `gpu:2`, `gpu:a100:4(S:0-1),gpu:v100:2` and `(null)`; ignores other
 * resources.
 */
function countGpus(gres: string): number {
  const counts = gres.matchAll(/(?:^|,)gpu(?::[^:,(]+)?:(\d+)/g)
  return Array.from(counts).reduce((sum, [, count]) => sum + Number(count), 0)
}

/**
 * Whether a node may have the requested features. Only conjunctions (`a&b`, `a,b`) are evaluated;
 * for other expressions any node may fit, and Slurm decides.
 */
export function mayHaveFeatures({ features }: PartitionNode, constraint: string | null): boolean {
  if (constraint === null || !/^[\w.,&-]+$/.test(constraint)) return true
  return constraint.split(/[,&]/).every((one) => features.includes(one))
}
