/** Counts the resources of a node that are in use. It starts nothing. */

import { fitsInto, lackOf, roomIn } from '../../tasks/resource-fit.ts'
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
export type Grant = Capacity

/** The free resources of a node, which batches take and give back. */
export class Slots {
  cores: number
  memoryMb: number
  readonly #allGpuIds: readonly GpuId[]
  /** The free GPUs, in the order of the capacity. */
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

  /** How many such requests fit at the same time. */
  count(request: ResourceRequest): number {
    return roomIn(this, request)
  }

  take(request: ResourceRequest): Grant {
    const { cores, memoryMb, gpus } = request
    this.cores -= cores
    this.memoryMb -= memoryMb
    return { cores, memoryMb, gpuIds: gpus === 0 ? noGpus : this.#gpuIds.splice(0, gpus) }
  }

  giveBack(grant: Grant): void {
    this.cores += grant.cores
    this.memoryMb += grant.memoryMb
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
  const node = { ...capacity, gpus: capacity.gpuIds.length }
  const lack = lackOf(node, request)
  if (lack !== null) {
    return { field: `resources.${lack}`, message: `asks for ${request[lack]}, has ${node[lack]}` }
  }
  if (request.ranks > 1 || request.ranksPerNode !== undefined) {
    const field = request.ranks > 1 ? 'resources.ranks' : 'resources.ranksPerNode'
    return { field, message: 'this backend runs no MPI ranks' }
  }
  if (request.labels === undefined) return null
  const wanted = Object.entries(request.labels).map((pair) => pair.join('='))
  return { field: 'resources.labels', message: `asks for ${wanted.join(', ')}, has no labels` }
}
