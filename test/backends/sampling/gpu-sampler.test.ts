import { beforeEach, describe, expect, it } from 'vitest'
import { GpuSampler } from '../../../src/backends/sampling/gpu-sampler.ts'
import type { GpuReading, GpuSource } from '../../../src/backends/sampling/sampler.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

let clock: ManualClock
let warnings: string[]

beforeEach(() => {
  clock = new ManualClock()
  warnings = []
})

function createSampler(source: GpuSource): GpuSampler {
  const log = { warn: (code: string, message: string) => warnings.push(`${code}: ${message}`) }
  return new GpuSampler({ clock, log, pollSeconds: 5, procRoot: '/nowhere', source })
}

class FakeSource implements GpuSource {
  readonly name: string
  probes = 0
  closes = 0
  readonly #probe: GpuSource['probe']
  readonly #sample: GpuSource['sample']

  constructor(name: string, probe: GpuSource['probe'], sample: GpuSource['sample'] = never) {
    this.name = name
    this.#probe = probe
    this.#sample = sample
  }

  probe(): ReturnType<GpuSource['probe']> {
    this.probes++
    return this.#probe()
  }

  sample(): ReturnType<GpuSource['sample']> {
    return this.#sample()
  }

  async close(): Promise<void> {
    this.closes++
  }
}

const never = (): Promise<never> => new Promise(() => {})
const ready = async () => ({ state: 'ready' }) as const
const absent = async () => ({ state: 'absent', reason: 'not here' }) as const

describe('GpuSampler', () => {
  it('GpuSampler reads its source, and closes it once', async () => {
    const source = new FakeSource('only', ready, async () => [{ gpu_id: 0, gpu_percent: 7 }])
    const sampler = createSampler(source)
    await sampler.prime()
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: 7 }])
    await sampler.close()
    await sampler.close()
    expect([source.probes, source.closes]).toEqual([1, 1])
    expect(await sampler.sample()).toEqual([])
    expect(warnings).toEqual([])
  })

  it('GpuSampler closes a source that the machine does not have, without a warning', async () => {
    const source = new FakeSource('only', absent)
    const sampler = createSampler(source)
    await sampler.prime()
    expect(await sampler.sample()).toEqual([])
    expect([source.probes, source.closes]).toEqual([1, 1])
    expect(warnings).toEqual([])
  })

  it('row 59: GpuSampler gives up a source that hangs, with one warning', async () => {
    const source = new FakeSource('only', never)
    const sampler = createSampler(source)
    const primed = sampler.prime()
    await clock.advance(2000)
    await primed
    expect(await sampler.sample()).toEqual([])
    expect([source.probes, source.closes]).toEqual([1, 1])
    expect(warnings).toHaveLength(1)
  })

  it('row 59: GpuSampler gives GPUs as null during a hung call, and calls no more', async () => {
    const answers = [0, 1, 2].map(() => Promise.withResolvers<readonly GpuReading[]>())
    let calls = 0
    const source = new FakeSource('only', ready, () => answers[calls++]?.promise ?? never())
    const answer = (call: number, gpu_percent: number): void =>
      answers[call]?.resolve([{ gpu_id: 0, gpu_percent }])
    const sampler = createSampler(source)
    await sampler.prime()
    const first = sampler.sample()
    answer(0, 50)
    expect(await first).toEqual([{ gpu_id: 0, gpu_percent: 50 }])
    const second = sampler.sample()
    await clock.advance(2000)
    expect(await second).toEqual([{ gpu_id: 0, gpu_percent: null }])
    expect(await sampler.sample()).toEqual([{ gpu_id: 0, gpu_percent: null }])
    expect(calls).toBe(2)
    answer(1, 60)
    await clock.advance(0)
    const third = sampler.sample()
    answer(2, 70)
    expect(await third).toEqual([{ gpu_id: 0, gpu_percent: 70 }])
    expect(calls).toBe(3)
    expect(warnings).toEqual([
      'GpuUnreadable: GPU utilization is unknown: only: no answer within 2 s',
    ])
  })
})
