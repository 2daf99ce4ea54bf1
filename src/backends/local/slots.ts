/** What the machine has, and what of it is in use. It counts; it starts nothing. */

import { defaultResources, type ResourceRequest } from '../../tasks/resources.ts'

/** What the machine has, or has left. */
export interface Capacity {
  readonly cores: number
  readonly memoryMb: number
  /** The ids of the GPUs. */
  readonly gpuIds: readonly number[]
}

/** What a batch holds while it runs. */
export interface Grant {
  readonly cores: number
  readonly memoryMb: number
  readonly gpuIds: readonly number[]
}

/** The resources in use, taken and given back. */
export class Slots {
  #cores: number
  #memoryMb: number
  #gpuIds: number[]

  constructor(capacity: Capacity) {
    this.#cores = capacity.cores
    this.#memoryMb = capacity.memoryMb
    this.#gpuIds = [...capacity.gpuIds]
  }

  fits(request: ResourceRequest): boolean {
    const { cores, memoryMb, gpus } = request
    return cores <= this.#cores && memoryMb <= this.#memoryMb && gpus <= this.#gpuIds.length
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
    this.#gpuIds.push(...grant.gpuIds)
    this.#gpuIds.sort((a, b) => a - b)
  }
}

const noGpus: readonly number[] = Object.freeze([])

/** Why this machine will never have what the task asks for, or `null`. */
export function neverFits(
  request: ResourceRequest,
  capacity: Capacity,
): { field: string; message: string } | null {
  // One core and nothing else: every machine has that.
  if (request === defaultResources) return null
  const wants = [
    ['cores', request.cores, capacity.cores],
    ['memoryMb', request.memoryMb, capacity.memoryMb],
    ['gpus', request.gpus, capacity.gpuIds.length],
  ] as const
  for (const [name, wanted, there] of wants) {
    if (wanted > there)
      return { field: `resources.${name}`, message: `asks for ${wanted}, has ${there}` }
  }
  if (request.ranks === 1) return null
  return { field: 'resources.ranks', message: 'this backend runs no MPI ranks' }
}
