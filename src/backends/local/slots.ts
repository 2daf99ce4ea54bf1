/** Counts the free resources of a node. */

import { fitsInto, findShortage, maxRequests } from '../../tasks/resource-fit.ts'
import { isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'

/** A GPU as CUDA_VISIBLE_DEVICES names it: an index, or a UUID such as `GPU-…` or `MIG-…`. */
export type GpuId = number | string

export interface Capacity {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly GpuId[]
}

/** The resources that a batch holds while it runs. */
export type Grant = Capacity

/** The free resources of a node. Batches acquire and release them. */
export class Slots {
  cores: number
  memoryMb: number
  readonly #allGpuIds: readonly GpuId[]
  #gpuIds: GpuId[]

  constructor(capacity: Capacity) {
    this.cores = capacity.cores
    this.memoryMb = capacity.memoryMb
    this.#allGpuIds = capacity.gpuIds
    this.#gpuIds = [...capacity.gpuIds]
  }

  get gpus(): number {
    return this.#gpuIds.length
  }

  fits(request: ResourceRequest): boolean {
    return fitsInto(this, request)
  }

  countFitting(request: ResourceRequest): number {
    return maxRequests(this, request)
  }

  acquire(request: ResourceRequest): Grant {
    const { cores, memoryMb, gpus } = request
    this.cores -= cores
    this.memoryMb -= memoryMb
    return { cores, memoryMb, gpuIds: gpus === 0 ? noGpus : this.#gpuIds.splice(0, gpus) }
  }

  release(grant: Grant): void {
    this.cores += grant.cores
    this.memoryMb += grant.memoryMb
    if (grant.gpuIds.length === 0) return
    const free = new Set([...this.#gpuIds, ...grant.gpuIds])
    this.#gpuIds = this.#allGpuIds.filter((id) => free.has(id))
  }
}

const noGpus: readonly GpuId[] = Object.freeze([])

/** Returns the reason why this node can never satisfy the request, or `null` if it can. */
export function resourceRefusal(
  request: ResourceRequest,
  capacity: Capacity,
): { field: string; message: string } | null {
  if (isDefaultRequest(request)) return null
  const node = { ...capacity, gpus: capacity.gpuIds.length }
  const lack = findShortage(node, request)
  if (lack !== null) {
    return {
      field: `resources.${lack}`,
      message: `asks for ${request[lack]}, but the node has ${node[lack]}`,
    }
  }
  if (request.ranks > 1 || request.ranksPerNode !== undefined) {
    const field = request.ranks > 1 ? 'resources.ranks' : 'resources.ranksPerNode'
    return { field, message: 'this backend runs no MPI ranks' }
  }
  if (request.labels === undefined) return null
  const labelTexts = Object.entries(request.labels).map((pair) => pair.join('='))
  const message = `asks for ${labelTexts.join(', ')}, but the node has no labels`
  return { field: 'resources.labels', message }
}
