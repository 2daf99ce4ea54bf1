/** What a node has, and what of it is in use. It counts; it starts nothing. */

import { isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'

/** A GPU as CUDA_VISIBLE_DEVICES names it: an index, or a UUID such as `GPU-…` or `MIG-…`. */
export type GpuId = number | string

/** What a node has. */
export interface Capacity {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly GpuId[]
}

/** What a batch holds while it runs. */
export interface Grant {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly GpuId[]
}

/** The resources in use, taken and given back. */
export class Slots {
  #cores: number
  #memoryMb: number
  readonly #allGpuIds: readonly GpuId[]
  /** In the order of the capacity. */
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

  /** How many such requests fit at a time, as far as cores and GPUs decide; 0 if none does. */
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

/** Why this node will never have what the task asks for, or `null`. */
export function neverFits(
  request: ResourceRequest,
  capacity: Capacity,
): { field: string; message: string } | null {
  // Every node has one core.
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
