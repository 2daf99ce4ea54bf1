/** The resources that this node offers to tasks: given by the caller, or detected. */

import { readdirSync } from 'node:fs'
import { availableParallelism, totalmem } from 'node:os'
import { ValueError } from '../../foundation/errors.ts'
import { describe, expectInteger, expectNumber, invalid } from '../../foundation/options.ts'
import { findCpuLimit, findMemoryLimit, type KernelRoots } from '../sampling/cgroup.ts'
import type { GpuId } from './slots.ts'

const systemRoots: KernelRoots = { procRoot: '/proc', cgroupRoot: '/sys/fs/cgroup' }

/**
 * The number of processors that the CPU affinity and the control group allow this process to use.
 */
export function usableCores(roots: KernelRoots = systemRoots): number {
  const processors = availableParallelism()
  const limit = findCpuLimit(roots, processors)?.cores ?? processors
  return Math.max(1, Math.floor(limit))
}

/** The memory limit of this process's control group, or else the memory of the node. */
export function usableMemoryMb(roots: KernelRoots = systemRoots): number {
  const total = totalmem()
  return Math.floor((findMemoryLimit(roots, total)?.bytes ?? total) / 2 ** 20)
}

/**
 * The GPUs in `CUDA_VISIBLE_DEVICES` up to the first invalid id, as in CUDA. All GPUs if it is
 * unset.
 */
export const visibleGpus = (): GpuId[] => parseGpuIds(process.env['CUDA_VISIBLE_DEVICES'])

export function parseGpuIds(visible: string | undefined): GpuId[] {
  if (visible === undefined) return listDriverGpus()
  const ids: GpuId[] = []
  for (const entry of visible.split(',')) {
    const id = parseGpuId(entry.trim())
    if (id === null) break
    if (!ids.includes(id)) ids.push(id)
  }
  return ids
}

function listDriverGpus(): number[] {
  try {
    return readdirSync('/proc/driver/nvidia/gpus').map((_, id) => id)
  } catch {
    return []
  }
}

/** Matches UUIDs, and the tiles of an Intel GPU as `<GPU>.<tile>`. */
const gpuUuidPattern = /^(?:(?:GPU|MIG)-[\w./-]+|\d+\.\d+)$/

function parseGpuId(text: string): GpuId | null {
  if (/^\d+$/.test(text)) return Number(text)
  return gpuUuidPattern.test(text) ? text : null
}

export const expectCores = (value: unknown): number =>
  expectInteger('cores', value, { min: 1, max: 65_536 })

export const expectMemoryMb = (value: unknown): number =>
  expectNumber('memoryMb', value, { min: 0, max: 2 ** 40 })

/**
 * Returns the ids of the GPUs. A count selects the first visible GPUs. A list is used unchanged.
 */
export function expectGpus(value: unknown): readonly GpuId[] {
  if (typeof value === 'number') {
    const count = expectInteger('gpus', value, { min: 0, max: 1024 })
    const visible = visibleGpus()
    if (count > visible.length) throw tooManyGpusError(count, visible.length)
    return visible.slice(0, count)
  }
  if (!Array.isArray(value)) throw invalid('gpus', 'a count or a list of GPU ids', value)
  // Unlike `map`, `Array.from` also visits the holes of a sparse array.
  const ids = Array.from(value, (one: unknown, at) => expectGpuId(`gpus[${at}]`, one))
  const duplicateIndex = ids.findIndex((id, at) => ids.indexOf(id) !== at)
  if (duplicateIndex === -1) return Object.freeze(ids)
  const field = `gpus[${duplicateIndex}]`
  throw new ValueError(`${field}: ${describe(ids[duplicateIndex])} is named twice`, { field })
}

/** Creates the error for a count above that of the visible GPUs. Guessed ids could be wrong. */
function tooManyGpusError(count: number, visible: number): ValueError {
  const visibleText = visible === 1 ? '1 is visible' : `${visible} are visible`
  return new ValueError(`gpus: asks for ${count}, ${visibleText}`, {
    field: 'gpus',
    expected: `a count of at most ${visible}, or a list of GPU ids`,
    got: count,
    hint: 'Name GPUs that this process cannot see by their ids, such as `gpus: [0, 1]`.',
  })
}

function expectGpuId(field: string, value: unknown): GpuId {
  if (typeof value === 'number') return expectInteger(field, value, { min: 0, max: 65_535 })
  const id = typeof value === 'string' ? parseGpuId(value) : null
  if (id === null) throw invalid(field, 'an index or a UUID such as "GPU-…" or "MIG-…"', value)
  return id
}
