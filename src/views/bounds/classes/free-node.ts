/** The free resources of a node, and the total size of all nodes. */

import { hasLabels } from '../../../tasks/resource-fit.ts'
import type { HeldResource, NodeSize, SlotNode, SlotRequest } from '../slots.ts'

export interface FreeNode {
  readonly backend: string
  size: Readonly<NodeSize>
  /** Indexes of the requests that may run on this node. */
  requests: readonly number[]
  /** Indexes of the backend's requests for labels that this node does not have. */
  unlabelled: readonly number[]
  isHere: boolean
  cores: number
  gpus: number
  memoryMb: number
  workers: number
  processes: number
}

/** A change of the size of a node. */
export interface SizeChange {
  readonly time: number
  readonly node: number
  readonly size: NodeSize
}

export const sizeChangesOf = (nodes: readonly SlotNode[]): SizeChange[] =>
  nodes.flatMap((one, node) =>
    one.earlier.map(({ until }, at) => ({ time: until, node, size: one.earlier[at + 1] ?? one })),
  )

/** For unknown sizes: larger than any node, but finite, so that sums can be subtracted again. */
const unlimited = 2 ** 45

const orUnlimited = (size: number): number => (size === 0 ? unlimited : size)

/** A node before it joins, with all its resources free. */
export function toFreeNode(node: SlotNode, requests: readonly SlotRequest[]): FreeNode {
  const size = node.earlier[0] ?? node
  return {
    backend: node.backend,
    size,
    ...requestsFor(node.backend, size, requests),
    isHere: false,
    cores: size.cores,
    gpus: size.gpus,
    memoryMb: orUnlimited(size.memoryMb),
    workers: orUnlimited(size.workers),
    processes: orUnlimited(size.processes),
  }
}

/** Changes the size of a node; running tasks keep their resources. */
export function resizeNode(free: FreeNode, size: NodeSize, requests: readonly SlotRequest[]): void {
  const before = free.size
  free.size = size
  free.cores += size.cores - before.cores
  free.gpus += size.gpus - before.gpus
  free.memoryMb += orUnlimited(size.memoryMb) - orUnlimited(before.memoryMb)
  free.workers += orUnlimited(size.workers) - orUnlimited(before.workers)
  free.processes += orUnlimited(size.processes) - orUnlimited(before.processes)
  Object.assign(free, requestsFor(free.backend, size, requests))
}

function requestsFor(
  backend: string,
  size: NodeSize,
  all: readonly SlotRequest[],
): Pick<FreeNode, 'requests' | 'unlabelled'> {
  const own = all.flatMap((request, at) => (request.backend === backend ? [at] : []))
  const mayRun = (at: number): boolean => hasLabels(size, all[at] ?? {})
  return { requests: own.filter(mayRun), unlabelled: own.filter((at) => !mayRun(at)) }
}

export const createHeld = (): Record<HeldResource, number> => ({
  cores: 0,
  gpus: 0,
  memory: 0,
  workers: 0,
  processes: 0,
})

/** The sizes of all nodes together. */
export class TotalSize {
  readonly #sums = createHeld()
  /** The number of nodes whose size is unknown, which makes the total unlimited. */
  readonly #unlimited = createHeld()

  add(size: NodeSize, sign = 1): void {
    const { cores, gpus, memoryMb: memory, workers, processes } = size
    const sizes = { cores, gpus, memory, workers, processes }
    this.#sums.cores += sign * cores
    this.#sums.gpus += sign * gpus
    for (const kind of limits) {
      this.#sums[kind] += sign * sizes[kind]
      if (sizes[kind] === 0 && cores > 0) this.#unlimited[kind] += sign
    }
  }

  toCapacity(): Record<HeldResource, number> {
    const capacity = { ...this.#sums }
    for (const kind of limits) if (this.#unlimited[kind] > 0) capacity[kind] = 0
    return capacity
  }
}

const limits = ['memory', 'workers', 'processes'] as const
