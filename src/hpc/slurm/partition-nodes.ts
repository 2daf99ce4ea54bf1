/** What `sinfo` prints about the nodes of a partition. Pure; the same for all versions. */

import { parseTimeLimit } from './time-limit.ts'

/** Fields that every version of `sinfo` has. */
export const nodeFormat = '%n|%o|%c|%m|%G|%f|%P|%L|%l'

export interface PartitionNode {
  readonly name: string
  readonly address: string
  readonly cores: number
  readonly memoryMb: number
  readonly gpus: number
  /** What `--constraint` asks for. */
  readonly features: readonly string[]
  readonly partition: string
  /** Whether jobs that name no partition go there. */
  readonly isDefault: boolean
  /** The limit of jobs that ask for none; `Infinity` without one. */
  readonly defaultSeconds: number
  /** The longest limit of a job; `Infinity` without one. */
  readonly longestSeconds: number
}

/** Lines of `sinfo -h -N -o FORMAT`; `null` if there is something else among them. */
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
  const longestSeconds = parseTimeLimit(fields[8] ?? '')
  // Sizes of nodes that differ end with a plus, where they are printed together.
  if (fields.length !== 9 || longestSeconds === undefined) return null
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
    // Without a default, which is `n/a`, it is the longest.
    defaultSeconds: parseTimeLimit(fields[7] ?? '') ?? longestSeconds ?? Infinity,
    longestSeconds: longestSeconds ?? Infinity,
  }
}

/** Such as `gpu:2`, `gpu:a100:4(S:0-1),gpu:v100:2` and `(null)`; others are no GPUs. */
function countGpus(gres: string): number {
  const counts = gres.matchAll(/(?:^|,)gpu(?::[^:,(]+)?:(\d+)/g)
  return Array.from(counts).reduce((sum, [, count]) => sum + Number(count), 0)
}

/**
 * Whether a node has the features that are asked for. Expressions other than names that are all
 * needed (`a&b`, `a,b`) are Slurm's to decide: any node may fit.
 */
export function mayHaveFeatures({ features }: PartitionNode, constraint: string | null): boolean {
  if (constraint === null || !/^[\w.,&-]+$/.test(constraint)) return true
  return constraint.split(/[,&]/).every((one) => features.includes(one))
}
