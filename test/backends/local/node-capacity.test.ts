import { availableParallelism, totalmem } from 'node:os'
import { afterEach, describe, expect, it, vi } from 'vitest'
import {
  expectGpus,
  usableCores,
  usableMemoryMb,
  visibleGpus,
} from '../../../src/backends/local/node-capacity.ts'
import { KernelTree } from '../sampling/kernel-tree.ts'

const version2 = {
  'proc/self/cgroup': '0::/job\n',
  'cgroup/cgroup.procs': '',
  'cgroup/job/cgroup.procs': '',
}
const version1 = {
  'proc/self/cgroup': '3:memory:/job\n2:cpu,cpuacct:/job\n',
  'cgroup/memory/cgroup.procs': '',
  'cgroup/cpu/cgroup.procs': '',
  'cgroup/cpuacct/cgroup.procs': '',
}

describe('the default capacity of a node', () => {
  it.each([
    [
      'version 2',
      {
        ...version2,
        'cgroup/job/cpu.max': '100000 100000\n',
        'cgroup/job/memory.max': '268435456\n',
      },
    ],
    [
      'version 1',
      {
        ...version1,
        'cgroup/cpu/job/cpu.cfs_quota_us': '100000\n',
        'cgroup/cpu/job/cpu.cfs_period_us': '100000\n',
        'cgroup/memory/job/memory.limit_in_bytes': '268435456\n',
      },
    ],
  ])('the default capacity is that of the control group, %s', (_, files) => {
    using tree = new KernelTree()
    tree.write(files)
    expect([usableCores(tree), usableMemoryMb(tree)]).toEqual([1, 256])
  })

  it('the default capacity has at least one core, however small the quota is', () => {
    using tree = new KernelTree()
    tree.write({ ...version2, 'cgroup/job/cpu.max': '10000 100000\n' })
    expect(usableCores(tree)).toBe(1)
  })

  it('the default capacity is the whole machine where there is no limit', () => {
    using tree = new KernelTree()
    expect(usableCores(tree)).toBe(availableParallelism())
    expect(usableMemoryMb(tree)).toBe(Math.floor(totalmem() / 2 ** 20))
  })
})

describe('GPUs', () => {
  afterEach(() => {
    vi.unstubAllEnvs()
  })

  it.each([
    ['0, 2', [0, 2]],
    ['GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1', ['GPU-8932f937-d72c-4106-c12f-20bd9faed9f6', 1]],
    ['MIG-GPU-8932f937/1/0', ['MIG-GPU-8932f937/1/0']],
    ['3,3,5', [3, 5]],
    ['1,-1,0', [1]],
    ['NoDevFiles', []],
    ['', []],
  ])('CUDA_VISIBLE_DEVICES=%s shows them by index and by UUID', (visible, ids) => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', visible)
    expect(visibleGpus()).toEqual(ids)
  })

  it('a count takes the first visible ones', () => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', 'GPU-a,GPU-b')
    expect(expectGpus(1)).toEqual(['GPU-a'])
    expect(expectGpus(2)).toEqual(['GPU-a', 'GPU-b'])
    expect(expectGpus(0)).toEqual([])
  })

  it.each([
    ['GPU-x,5', 3, '2 are visible'],
    ['GPU-x', 2, '1 is visible'],
    ['', 1, '0 are visible'],
  ])('with CUDA_VISIBLE_DEVICES="%s" a count of %i is refused: %s', (visible, count, message) => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', visible)
    expect(() => expectGpus(count)).toThrow(
      expect.objectContaining({
        name: 'ValueError',
        field: 'gpus',
        message: expect.stringContaining(message) as string,
        hint: expect.stringContaining('`gpus: [0, 1]`') as string,
      }),
    )
  })

  it('a list is taken as it is, visible or not', () => {
    vi.stubEnv('CUDA_VISIBLE_DEVICES', '')
    expect(expectGpus([7, 'GPU-a'])).toEqual([7, 'GPU-a'])
  })

  it.each([
    // oxlint-disable-next-line no-sparse-arrays
    ['a hole', [, 1], 'gpus[0]', /^Expected `gpus\[0\]` to be an index/],
    ['no id', [1, 'x'], 'gpus[1]', /^Expected `gpus\[1\]` to be an index/],
    ['one that is named twice', [1, 2, 1], 'gpus[2]', /named twice/],
  ])('a list with %s names the wrong element', (_, ids, field, message) => {
    expect(() => expectGpus(ids)).toThrow(
      expect.objectContaining({ field, message: expect.stringMatching(message) as string }),
    )
  })
})
