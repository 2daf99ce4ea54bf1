/** Counts the resources of a node that are in use. It starts nothing. */

import { isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'

/** A GPU as CUDA_VISIBLE_DEVICES names it: an index, or a UUID such as `GPU-…` or `MIG-…`. */
export type GpuId = number | string

/** The resources that a node offers. */
export interface Capacity {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly GpuId[]
}

/** The resources that a batch holds while it runs. */
export interface Grant {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly GpuId[]
}

/** The free resources of a node, which batches take and give back. */
export class Slots {
  #cores: number
  #memoryMb: number
  readonly #allGpuIds: readonly GpuId[]
  /** The free GPUs, in the order of the capacity. */
  #gpuIds: GpuId[]

  constructor(capacity: Capacity) {
    this.#cores = capacity.cores
    this.#memoryMb = capacity.memoryMb
    this.#allGpuIds = capacity.gpuIds
    this.#gpuIds = [...capacity.gpuIds]
  }

  fits(request: ResourceRequest): boolean {
    const { cores, memoryMb, gpus } = request
    return cores <= this.#cores && memoryMb <= this.#memoryMb && gpus <= this.#gpuIds.length
  }

  /** How many such requests fit at a time, judged by cores and GPUs; 0 if not even one fits. */
  count(request: ResourceRequest): number {
    if (!this.fits(request)) return 0
    const { cores, gpus } = request
    return Math.floor(
      Math.min(
        cores === 0 ? Infinity : this.#cores / cores,
        gpus === 0 ? Infinity : this.#gpuIds.length / gpus,
      ),
    )
  }

  take(request: ResourceRequest): Grant {
    const { cores, memoryMb, gpus } = request
    this.#cores -= cores
    this.#memoryMb -= memoryMb
    return { cores, memoryMb, gpuIds: gpus === 0 ? noGpus : this.#gpuIds.splice(0, gpus) }
  }

  giveBack(grant: Grant): void {
    this.#cores += grant.cores
    this.#memoryMb += grant.memoryMb
    if (grant.gpuIds.length === 0) return
    const free = new Set([...this.#gpuIds, ...grant.gpuIds])
    this.#gpuIds = this.#allGpuIds.filter((id) => free.has(id))
  }
}

const noGpus: readonly GpuId[] = Object.freeze([])

/** Why this node can never satisfy the request, or `null`. */
export function neverFits(
  request: ResourceRequest,
  capacity: Capacity,
): { field: string; message: string } | null {
  // The default request is one core, which every node has.
  if (isDefaultRequest(request)) return null
  const wants = [
    ['cores', request.cores, capacity.cores],
    ['memoryMb', request.memoryMb, capacity.memoryMb],
    ['gpus', request.gpus, capacity.gpuIds.length],
  ] as const
  for (const [name, wanted, there] of wants) {
    if (wanted > there)
      return { field: `resources.${name}`, message: `asks for ${wanted}, has ${there}` }
  }
  if (request.ranks > 1 || request.ranksPerNode !== undefined) {
    const field = request.ranks > 1 ? 'resources.ranks' : 'resources.ranksPerNode'
    return { field, message: 'this backend runs no MPI ranks' }
  }
  if (request.labels === undefined) return null
  const wanted = Object.entries(request.labels).map((pair) => pair.join('='))
  return { field: 'resources.labels', message: `asks for ${wanted.join(', ')}, has no labels` }
}
