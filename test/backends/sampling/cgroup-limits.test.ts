import { describe, expect, it } from 'vitest'
import { NodeSampler } from '../../../src/backends/sampling/node-sampler.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { KernelTree, quietNode, stat } from './kernel-tree.ts'

/** Two processors of four for the job, half a megabyte of one for its step. */
const version2 = {
  ...quietNode,
  'proc/self/cgroup': '0::/job/step\n',
  'cgroup/cgroup.procs': '',
  'cgroup/cpu.stat': 'usage_usec 77\n',
  'cgroup/job/cpu.max': '200000 100000\n',
  'cgroup/job/cpu.stat': 'usage_usec 1000000\nuser_usec 1\n',
  'cgroup/job/memory.max': 'max\n',
  'cgroup/job/step/cpu.max': 'max 100000\n',
  'cgroup/job/step/cpu.stat': 'usage_usec 5\n',
  'cgroup/job/step/memory.max': '512000\n',
  'cgroup/job/step/memory.current': '300000\n',
  'cgroup/job/step/memory.stat': 'anon 1\ninactive_file 44000\n',
}

const version1 = {
  ...quietNode,
  'proc/self/cgroup': '5:cpu,cpuacct:/job\n4:memory:/job\n0::/\n',
  'cgroup/cpu,cpuacct/cgroup.procs': '',
  'cgroup/cpu,cpuacct/job/cpu.cfs_quota_us': '50000\n',
  'cgroup/cpu,cpuacct/job/cpu.cfs_period_us': '100000\n',
  'cgroup/cpu,cpuacct/job/cpuacct.usage': '1000000000\n',
  'cgroup/memory/cgroup.procs': '',
  'cgroup/memory/memory.limit_in_bytes': '9223372036854771712\n',
  'cgroup/memory/job/memory.limit_in_bytes': '512000\n',
  'cgroup/memory/job/memory.usage_in_bytes': '300000\n',
  'cgroup/memory/job/memory.stat': 'inactive_file 7\ntotal_inactive_file 44000\n',
}

async function sampleAfterSecond(
  before: Readonly<Record<string, string>>,
  after: Readonly<Record<string, string>>,
): Promise<{ cpu: number | null; memory: number | null }> {
  using tree = new KernelTree()
  tree.write(before)
  const clock = new ManualClock()
  const { procRoot, cgroupRoot } = tree
  const sampler = new NodeSampler({ clock, procRoot, cgroupRoot })
  sampler.prime()
  await clock.advance(1000)
  tree.write({ 'proc/stat': stat(140, 960), ...after })
  const reading = sampler.sample()
  return { cpu: reading.cpu_percent, memory: reading.memory_percent }
}

describe('control groups of version 2', () => {
  it('control groups v2 make readings relative to the group with the tightest limit', async () => {
    const after = { 'cgroup/job/cpu.stat': 'usage_usec 1500000\nuser_usec 1\n' }
    // Half a processor second of two, and 256,000 of 512,000 bytes.
    expect(await sampleAfterSecond(version2, after)).toEqual({ cpu: 25, memory: 50 })
  })

  it('control groups v2 are read at the outermost of equal limits', async () => {
    const before = { ...version2, 'cgroup/job/step/cpu.max': '200000 100000\n' }
    const after = { 'cgroup/job/cpu.stat': 'usage_usec 1500000\n' }
    expect(await sampleAfterSecond(before, after)).toEqual({ cpu: 25, memory: 50 })
  })

  it('control groups v2 are read at the mount when the path is one of the host', async () => {
    const before = {
      ...quietNode,
      'proc/self/cgroup': '0::/docker/abc\n',
      'cgroup/cgroup.procs': '',
      'cgroup/cpu.max': '100000 100000',
      'cgroup/cpu.stat': 'usage_usec 0\n',
      'cgroup/memory.max': '1000\n',
      'cgroup/memory.current': '750\n',
      'cgroup/memory.stat': 'inactive_file 0\n',
    }
    const after = { 'cgroup/cpu.stat': 'usage_usec 600000\n' }
    expect(await sampleAfterSecond(before, after)).toEqual({ cpu: 60, memory: 75 })
  })

  it('control groups v2 never give more than 100 % or less than 0', async () => {
    const after = {
      'cgroup/job/cpu.stat': 'usage_usec 9000000\n',
      'cgroup/job/step/memory.current': '40000\n',
    }
    expect(await sampleAfterSecond(version2, after)).toEqual({ cpu: 100, memory: 0 })
  })

  it('row 60: control groups v2 give null for a use that ran backwards or vanished', async () => {
    const after = {
      'cgroup/job/cpu.stat': 'usage_usec 3\n',
      'cgroup/job/step/memory.current': '',
    }
    expect(await sampleAfterSecond(version2, after)).toEqual({ cpu: null, memory: null })
  })
})

describe('control groups of version 1', () => {
  it('control groups v1 make readings relative to their limits', async () => {
    const after = { 'cgroup/cpu,cpuacct/job/cpuacct.usage': '1100000000\n' }
    // A tenth of a second of half a processor, and 256,000 of 512,000 bytes.
    expect(await sampleAfterSecond(version1, after)).toEqual({ cpu: 20, memory: 50 })
  })
})

describe('control groups that do not limit', () => {
  it.each([
    [
      'there is no limit',
      { 'cgroup/job/cpu.max': 'max 100000', 'cgroup/job/step/memory.max': 'max' },
    ],
    [
      'it is no less than the machine has',
      {
        'cgroup/job/cpu.max': '400000 100000',
        'cgroup/job/step/memory.max': '1024000',
      },
    ],
    ['the use cannot be read', { 'cgroup/job/cpu.stat': '', 'cgroup/job/step/memory.current': '' }],
  ])('control groups without limits leave the node its own readings when %s', async (_, files) => {
    expect(await sampleAfterSecond({ ...version2, ...files }, {})).toEqual({ cpu: 40, memory: 25 })
  })
})
