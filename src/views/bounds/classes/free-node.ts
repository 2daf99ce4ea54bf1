/** What a node has free, and what all nodes have together. */

import type { HeldResource, NodeSize, SlotNode, SlotRequest } from '../slots.ts'

export interface FreeNode {
  readonly backend: string
  size: Readonly<NodeSize>
  /** The requests that may run here, by their indexes. */
  requests: readonly number[]
  /** Those of its backend that may not: it lacks their labels. */
  unlabelled: readonly number[]
  isHere: boolean
  cores: number
  gpus: number
  memoryMb: number
  workers: number
  processes: number
}

/** When a node has another size than before. */
export interface SizeChange {
  readonly time: number
  readonly node: number
  readonly size: NodeSize
}

export const sizeChangesOf = (nodes: readonly SlotNode[]): SizeChange[] =>
  nodes.flatMap((one, node) =>
    one.earlier.map(({ until }, at) => ({ time: until, node, size: one.earlier[at + 1] ?? one })),
  )

/** More than any node has, but finite: what tasks hold of it can be added and taken back. */
const untold = 2 ** 45

const orUntold = (size: number): number => (size === 0 ? untold : size)

/** Free at the start, of a node that is not there yet. */
export function toFreeNode(node: SlotNode, requests: readonly SlotRequest[]): FreeNode {
  const size = node.earlier[0] ?? node
  return {
    backend: node.backend,
    size,
    ...requestsFor(node.backend, size, requests),
    isHere: false,
    cores: size.cores,
    gpus: size.gpus,
    memoryMb: orUntold(size.memoryMb),
    workers: orUntold(size.workers),
    processes: orUntold(size.processes),
  }
}

/** What its tasks hold stays with them. */
export function resizeNode(free: FreeNode, size: NodeSize, requests: readonly SlotRequest[]): void {
  const before = free.size
  free.size = size
  free.cores += size.cores - before.cores
  free.gpus += size.gpus - before.gpus
  free.memoryMb += orUntold(size.memoryMb) - orUntold(before.memoryMb)
  free.workers += orUntold(size.workers) - orUntold(before.workers)
  free.processes += orUntold(size.processes) - orUntold(before.processes)
  Object.assign(free, requestsFor(free.backend, size, requests))
}

function requestsFor(
  backend: string,
  { labels }: NodeSize,
  all: readonly SlotRequest[],
): Pick<FreeNode, 'requests' | 'unlabelled'> {
  const own = all.flatMap((request, at) => (request.backend === backend ? [at] : []))
  const mayRun = (at: number): boolean =>
    Object.entries(all[at]?.labels ?? {}).every(([name, value]) => labels[name] === value)
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
  /** How many nodes do not tell it: without a limit on one node there is none. */
  readonly #untold = createHeld()

  add(size: NodeSize, sign = 1): void {
    const { cores, gpus, memoryMb: memory, workers, processes } = size
    const told = { cores, gpus, memory, workers, processes }
    this.#sums.cores += sign * cores
    this.#sums.gpus += sign * gpus
    for (const kind of limits) {
      this.#sums[kind] += sign * told[kind]
      if (told[kind] === 0 && cores > 0) this.#untold[kind] += sign
    }
  }

  toCapacity(): Record<HeldResource, number> {
    const capacity = { ...this.#sums }
    for (const kind of limits) if (this.#untold[kind] > 0) capacity[kind] = 0
    return capacity
  }
}

const limits = ['memory', 'workers', 'processes'] as const
