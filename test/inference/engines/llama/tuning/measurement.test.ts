import { expect, it } from 'vitest'
import {
  measure,
  type MeasurementOptions,
  type Probe,
} from '../../../../../src/inference/engines/llama/tuning/measurement.ts'
import { ManualClock } from '../../../../../src/testing/manual-clock.ts'

/** A model whose passes take a given time of a manual clock. */
function fakeModel(
  msPerToken: (usesFlash: boolean, threads: number, tokens: number) => number,
  slowdown = 1,
) {
  const clock = new ManualClock()
  let cpuMs = 0
  const lengths = new Map<number, number>()
  const counts = { probes: 0, passes: 0, tokens: 0, ms: 0 }
  const withProbe: MeasurementOptions['withProbe'] = async (usesFlash, use) => {
    counts.probes++
    lengths.clear()
    let threads = 0
    const probe: Probe = {
      setThreads: (count) => void (threads = count),
      async evaluate(parts) {
        let count = 0
        for (const { sequence, first, tokens } of parts) {
          expect(first).toBe(lengths.get(sequence) ?? 0)
          lengths.set(sequence, first + tokens.length)
          count += tokens.length
        }
        const ms = count * msPerToken(usesFlash, threads, count)
        counts.passes++
        counts.tokens += count
        counts.ms += ms
        cpuMs += ms
        await clock.advance(ms * slowdown)
      },
      truncate(sequence, count) {
        lengths.set(sequence, Math.min(count, lengths.get(sequence) ?? 0))
        return count > 0
      },
    }
    await use(probe)
  }
  const options = { clock, withProbe, vocabularySize: 9, maxThreads: 2, cpuMs: () => cpuMs }
  return { options, counts }
}

const free = { threads: null, flashAttention: 'auto', batchSize: null } as const

it('a fast model is measured completely, with a bounded number of tokens', async () => {
  const model = fakeModel((flash, threads, tokens) => (flash ? 0.1 : 0.2) + threads / tokens / 10)
  const measured = await measure({ ...model.options, fixed: free })
  expect(measured.threads.map(({ threads }) => threads)).toEqual([2, 1])
  expect(measured.threads[0]?.one).toBeCloseTo(0.4)
  expect(measured.threads[0]?.many).toBeCloseTo(0.225)
  expect(measured.attention?.plain.many).toBeCloseTo(0.2125)
  expect(measured.attention?.flash.many).toBeCloseTo(0.1125)
  expect(measured.prompts.map(({ tokens }) => tokens)).toEqual([128, 256, 512])
  expect(model.counts.probes).toBe(2)
  expect(model.counts.tokens).toBeLessThan(2200)
})

it.each([0.5, 2, 10, 100, 400, 700])('passes of %d ms per token fit into 2 s', async (ms) => {
  const model = fakeModel(() => ms)
  const measured = await measure({ ...model.options, fixed: free })
  expect(model.counts.ms).toBeLessThanOrEqual(2000)
  expect(measured.attention === null).toBe(ms > 1)
  expect(measured.threads.length).toBe(ms < 500 ? 2 : 1)
})

it.each([0.5, 1, 1.5, 2, 3, 10])('delayed passes of %d ms per token fit too', async (ms) => {
  let passes = 0
  const model = fakeModel(() => (passes++ % 2 === 0 ? ms : 1.5 * ms))
  await measure({ ...model.options, fixed: free })
  expect(model.counts.ms).toBeLessThanOrEqual(2000)
})

it('a model whose first token takes longer than the limit is not measured', async () => {
  const model = fakeModel(() => 5000)
  const measured = await measure({ ...model.options, fixed: free })
  expect(measured).toEqual({ threads: [], attention: null, prompts: [] })
  expect(model.counts.passes).toBe(1)
})

it('kinds of attention are compared by CPU time, which other programs do not change', async () => {
  const measured = await measure({
    ...fakeModel((flash) => (flash ? 0.1 : 0.2), 3).options,
    fixed: free,
  })
  expect(measured.threads[0]?.one).toBeCloseTo(0.6)
  expect(measured.attention?.plain.many).toBeCloseTo(0.2)
  expect(measured.attention?.flash.chat).toBeCloseTo(0.1)
})

it('a fixed setting is not measured', async () => {
  const model = fakeModel(() => 0.1)
  const fixed = { threads: 1, flashAttention: true, batchSize: null } as const
  const measured = await measure({ ...model.options, fixed })
  expect(measured.threads).toEqual([])
  expect(measured.attention).toBeNull()
  expect(measured.prompts).toHaveLength(3)
  expect(model.counts.probes).toBe(1)
})
