/** The resources of this node for tasks: as the caller specifies, else as the system allows. */

import { readdirSync } from 'node:fs'
import { availableParallelism, totalmem } from 'node:os'
import { ValueError } from '../../foundation/errors.ts'
import { describe, expectInteger, expectNumber, invalid } from '../../foundation/options.ts'
import { findCpuLimit, findMemoryLimit, type KernelRoots } from '../sampling/cgroup.ts'
import { version } from '../../foundation/version.ts'
import type { NodeCapacity } from '../backend.ts'
import type { Capacity, GpuId } from './slots.ts'

const kernel: KernelRoots = { procRoot: '/proc', cgroupRoot: '/sys/fs/cgroup' }

/** Converts the capacity to the form that sessions get. */
export const toNodeCapacity = (
  { cores, gpuIds, memoryMb }: Capacity,
  limits: Required<Pick<NodeCapacity, 'workers' | 'maxProcesses'>>,
): NodeCapacity => ({
  cores,
  gpus: gpuIds.length,
  memoryMb: Math.floor(memoryMb),
  labels: {},
  version,
  ...limits,
})

/** The number of processors that the CPU affinity and control group allow this process to use. */
export function usableCores(roots: KernelRoots = kernel): number {
  const processors = availableParallelism()
  const limit = findCpuLimit(roots, processors)?.cores ?? processors
  return Math.max(1, Math.floor(limit))
}

/** The megabytes that this process may use: its control group's limit, else the node's memory. */
export function usableMemoryMb(roots: KernelRoots = kernel): number {
  const total = totalmem()
  return Math.floor((findMemoryLimit(roots, total)?.bytes ?? total) / 2 ** 20)
}

/**
 * The GPUs that this process may use: those in `CUDA_VISIBLE_DEVICES`, else all of the driver's. As
 * in CUDA, entries that follow an invalid one are ignored.
 */
export const visibleGpus = (): GpuId[] => toGpuIds(process.env['CUDA_VISIBLE_DEVICES'])

/** Like `visibleGpus`, for a given value of `CUDA_VISIBLE_DEVICES`. */
export function toGpuIds(visible: string | undefined): GpuId[] {
  if (visible === undefined) return gpusOfDriver()
  const ids: GpuId[] = []
  for (const entry of visible.split(',')) {
    const id = toGpuId(entry.trim())
    if (id === null) break
    if (!ids.includes(id)) ids.push(id)
  }
  return ids
}

function gpusOfDriver(): number[] {
  try {
    return readdirSync('/proc/driver/nvidia/gpus').map((_, id) => id)
  } catch {
    return []
  }
}

/** Includes the tiles of an Intel GPU, `<GPU>.<tile>`. */
const uuid = /^(?:(?:GPU|MIG)-[\w./-]+|\d+\.\d+)$/

function toGpuId(text: string): GpuId | null {
  if (/^\d+$/.test(text)) return Number(text)
  return uuid.test(text) ? text : null
}

export const expectCores = (value: unknown): number =>
  expectInteger('cores', value, { min: 1, max: 65_536 })

export const expectMemoryMb = (value: unknown): number =>
  expectNumber('memoryMb', value, { min: 0, max: 2 ** 40 })

/** A count selects the first of the visible GPUs; a list is used as it is, visible or not. */
export function expectGpus(value: unknown): readonly GpuId[] {
  if (typeof value === 'number') {
    const count = expectInteger('gpus', value, { min: 0, max: 1024 })
    const visible = visibleGpus()
    if (count > visible.length) throw tooManyGpus(count, visible.length)
    return visible.slice(0, count)
  }
  if (!Array.isArray(value)) throw invalid('gpus', 'a count or a list of GPU ids', value)
  // Unlike `map`, `Array.from` does not skip the holes of a sparse array.
  const ids = Array.from(value, (one: unknown, at) => expectGpuId(`gpus[${at}]`, one))
  const again = ids.findIndex((id, at) => ids.indexOf(id) !== at)
  if (again === -1) return Object.freeze(ids)
  const field = `gpus[${again}]`
  throw new ValueError(`${field}: ${describe(ids[again])} is named twice`, { field })
}

/** Thrown instead of inventing ids, with which programs would get no GPU or a wrong one. */
function tooManyGpus(count: number, visible: number): ValueError {
  const seen = visible === 1 ? '1 is visible' : `${visible} are visible`
  return new ValueError(`gpus: asks for ${count}, ${seen}`, {
    field: 'gpus',
    expected: `a count of at most ${visible}, or a list of GPU ids`,
    got: count,
    hint: 'Name GPUs that this process cannot see by their ids, such as `gpus: [0, 1]`.',
  })
}

function expectGpuId(field: string, value: unknown): GpuId {
  if (typeof value === 'number') return expectInteger(field, value, { min: 0, max: 65_535 })
  const id = typeof value === 'string' ? toGpuId(value) : null
  if (id === null) throw invalid(field, 'an index or a UUID such as "GPU-…" or "MIG-…"', value)
  return id
}
