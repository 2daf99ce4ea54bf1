/** Which node and which GPUs a worker gets. */

import { ValueError } from '../../../foundation/errors.ts'

export interface SliceOptions {
  /** The worker, counted from 0. */
  readonly index: number
  /** GPUs of one worker. */
  readonly tpSize: number
  /** GPUs of one node; 0 for none at all. */
  readonly numGpus: number
  readonly nodeOffset: number
  /** `CUDA_VISIBLE_DEVICES` as it is: the GPUs that are ours to divide. */
  readonly visible: string | undefined
}

export interface WorkerSlice {
  readonly node: number
  /** For `CUDA_VISIBLE_DEVICES`; `null` leaves it as it is. */
  readonly gpus: string | null
}

/** Fills a node with workers before the next; without GPUs each node has one. */
export function sliceOf(options: SliceOptions): WorkerSlice {
  const { index, tpSize, numGpus, nodeOffset } = options
  if (numGpus > 0 && tpSize > numGpus) {
    throw new ValueError(`a worker of ${tpSize} GPUs does not fit into a node of ${numGpus}`, {
      field: 'tp_size',
      expected: `at most num_gpus, which is ${numGpus}`,
      got: tpSize,
    })
  }
  const perNode = Math.max(1, Math.floor(numGpus / tpSize))
  const node = nodeOffset + Math.floor(index / perNode)
  if (numGpus === 0) return { node, gpus: null }
  const ours = gpusOf(options)
  const first = (index % perNode) * tpSize
  return { node, gpus: ours.slice(first, first + tpSize).join(',') }
}

function gpusOf({ visible, numGpus }: SliceOptions): readonly (string | number)[] {
  if (visible === undefined) return Array.from({ length: numGpus }, (_, at) => at)
  const ids = visible.split(',').flatMap((id) => (id.trim() === '' ? [] : [id.trim()]))
  if (ids.length >= numGpus) return ids
  throw new ValueError(`CUDA_VISIBLE_DEVICES shows ${ids.length} GPUs of ${numGpus}`, {
    field: 'num_gpus',
    expected: `at most ${ids.length}`,
    got: numGpus,
  })
}
