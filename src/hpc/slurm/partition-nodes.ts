/** Parses the output of `sinfo` about the nodes of partitions. Pure. */

import { parseTimeLimit } from './time-limit.ts'

/** The fields to request from `sinfo`. Every version has them. */
export const nodeFormat = '%n|%o|%c|%m|%G|%f|%P|%L|%l'

export interface PartitionNode {
  readonly name: string
  readonly address: string
  readonly cores: number
  readonly memoryMb: number
  readonly gpus: number
  /** The features that `--constraint` can request. */
  readonly features: readonly string[]
  readonly partition: string
  readonly isDefault: boolean
  /** The time limit of jobs that set none; `Infinity` if there is no limit. */
  readonly defaultSeconds: number
  /** The maximum time limit of a job; `Infinity` if there is none. */
  readonly maxSeconds: number
}

/** Parses lines of `sinfo -h -N -o FORMAT`. Returns `null` if a line is malformed. */
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
  // Rejects sizes that end with a plus, which stand for several different nodes.
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
    // A partition without a default (`n/a`) uses its maximum.
    defaultSeconds: parseTimeLimit(fields[7] ?? '') ?? maxSeconds ?? Infinity,
    maxSeconds: maxSeconds ?? Infinity,
  }
}

/** Counts the GPUs in texts such as `gpu:2`, `gpu:a100:4(S:0-1),gpu:v100:2` and `(null)`. */
function countGpus(gres: string): number {
  const counts = gres.matchAll(/(?:^|,)gpu(?::[^:,(]+)?:(\d+)/g)
  return Array.from(counts).reduce((sum, [, count]) => sum + Number(count), 0)
}

/**
 * Whether the node may have the features. Evaluates only conjunctions (`a&b`, `a,b`), and returns
 * `true` for other expressions.
 */
export function mayHaveFeatures({ features }: PartitionNode, constraint: string | null): boolean {
  if (constraint === null || !/^[\w.,&-]+$/.test(constraint)) return true
  return constraint.split(/[,&]/).every((one) => features.includes(one))
}
