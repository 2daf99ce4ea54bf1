import { describe, expect, it } from 'vitest'
import { createLocalSampler } from '../../../src/backends/sampling/local-sampler.ts'
import { systemClock } from '../../../src/foundation/clock.ts'

describe('createLocalSampler', () => {
  it('reads this machine, its deltas from the second sample on', async () => {
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
