import { readdirSync, readlinkSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createLocalSampler, NodeSampler } from '../../../src/backends/sampling/node-sampler.ts'
import { unknownReadings } from '../../../src/backends/sampling/sampler.ts'
import { systemClock } from '../../../src/foundation/clock.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { disk, KernelTree, network, quietNode, stat } from './kernel-tree.ts'

const isLinux = process.platform === 'linux'

function primed(tree: KernelTree, clock = new ManualClock()): NodeSampler {
  const { procRoot, cgroupRoot } = tree
  const sampler = new NodeSampler({ clock, procRoot, cgroupRoot })
  sampler.prime()
  return sampler
}

describe('NodeSampler', () => {
  it('row 60: the first sample has percentages and no deltas, the second has both', () => {
    using tree = new KernelTree()
    tree.write(quietNode)
    const sampler = primed(tree)
    tree.write({ 'proc/stat': stat(160, 1040) })
    expect(sampler.sample()).toEqual({ ...unknownReadings, cpu_percent: 30, memory_percent: 25 })
    tree.write({
      'proc/stat': stat(260, 1040),
      'proc/diskstats': disk(13, 24),
      'proc/net/dev': network(305, 406),
    })
    expect(sampler.sample()).toEqual({
      cpu_percent: 100,
      memory_percent: 25,
      disk_read_bytes: 3 * 512,
      disk_write_bytes: 4 * 512,
      net_sent_bytes: 6,
      net_recv_bytes: 5,
    })
  })

  it('row 60: a counter that was reset or has wrapped is null once, and counts on', () => {
    using tree = new KernelTree()
    tree.write(quietNode)
    const sampler = primed(tree)
    sampler.sample()
    tree.write({ 'proc/diskstats': disk(0, 21), 'proc/net/dev': network(2, 399) })
    expect(sampler.sample()).toMatchObject({
      disk_read_bytes: null,
      disk_write_bytes: 512,
      net_sent_bytes: null,
      net_recv_bytes: null,
    })
    tree.write({ 'proc/diskstats': disk(1, 21), 'proc/net/dev': network(3, 400) })
    expect(sampler.sample()).toMatchObject({
      disk_read_bytes: 512,
      disk_write_bytes: 0,
      net_sent_bytes: 1,
      net_recv_bytes: 1,
    })
  })

  it('NodeSampler reads files longer than its buffer', () => {
    using tree = new KernelTree()
    const idle = Array.from({ length: 2000 }, (_, id) => ` 7 ${id} loop${id} 0 0 0 0 0 0 0 0\n`)
    const long = (text: string): string => idle.join('') + text
    tree.write({ ...quietNode, 'proc/diskstats': long(disk(1, 1)) })
    const sampler = primed(tree)
    sampler.sample()
    tree.write({ 'proc/diskstats': long(disk(2, 3)) })
    expect(sampler.sample()).toMatchObject({ disk_read_bytes: 512, disk_write_bytes: 1024 })
  })

  it('row 61: without /proc, node:os gives processors and memory and the rest is null', () => {
    using tree = new KernelTree()
    const sampler = primed(tree)
    // The system counts in ticks of some milliseconds: work until one has passed.
    let reading = sampler.sample()
    while (reading.cpu_percent === null) reading = sampler.sample()
    expect(reading).toEqual({
      ...unknownReadings,
      cpu_percent: expect.any(Number),
      memory_percent: expect.any(Number),
    })
    expect(reading.memory_percent).toBeGreaterThan(0)
    expect(reading.memory_percent).toBeLessThanOrEqual(100)
  })

  it('row 61: one unreadable file takes only its own fields', () => {
    using tree = new KernelTree()
    // A folder can be opened, but not read.
    const { 'proc/diskstats': _, ...others } = quietNode
    tree.write({ ...others, 'proc/diskstats/x': '' })
    const sampler = primed(tree)
    sampler.sample()
    tree.write({ 'proc/stat': 'garbage', 'proc/net/dev': network(301, 402) })
    expect(sampler.sample()).toEqual({
      ...unknownReadings,
      memory_percent: 25,
      net_sent_bytes: 2,
      net_recv_bytes: 1,
    })
  })

  it.runIf(isLinux)('NodeSampler keeps no file open', () => {
    using tree = new KernelTree()
    tree.write(quietNode)
    const openFiles = (): string[] =>
      readdirSync('/proc/self/fd')
        .map(targetOf)
        .filter((target) => target.startsWith(tree.root))
    const sampler = primed(tree)
    expect(sampler.sample()).not.toEqual(unknownReadings)
    expect(openFiles()).toEqual([])
  })

  it.runIf(isLinux)('NodeSampler reads the machine that it runs on', () => {
    const sampler = new NodeSampler({ clock: systemClock })
    sampler.prime()
    sampler.sample()
    let reading = sampler.sample()
    while (reading.cpu_percent === null) reading = sampler.sample()
    for (const value of Object.values(reading)) expect(value).toBeGreaterThanOrEqual(0)
  })
})

function targetOf(descriptor: string): string {
  try {
    return readlinkSync(`/proc/self/fd/${descriptor}`)
  } catch {
    return ''
  }
}

describe('createLocalSampler', () => {
  it('createLocalSampler reads this machine, its deltas from the second sample on', async () => {
    const log = { warn: () => {} }
    const sampler = createLocalSampler({ clock: systemClock, log, pollSeconds: 1 })
    await sampler.prime()
    const first = await sampler.sample()
    expect(first.node.memory_percent).toBeGreaterThan(0)
    expect(first.node).toMatchObject({ disk_read_bytes: null, net_sent_bytes: null })
    expect(first.gpus.map(({ gpu_id }) => gpu_id)).toEqual([...first.gpus.keys()])
    if (process.platform === 'linux') {
      const second = await sampler.sample()
      expect(second.node.disk_read_bytes).toBeGreaterThanOrEqual(0)
      expect(second.node.net_sent_bytes).toBeGreaterThanOrEqual(0)
    }
    await sampler.close()
  })
})
