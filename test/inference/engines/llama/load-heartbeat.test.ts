import { expect, it } from 'vitest'
import { startLoadHeartbeat } from '../../../../src/inference/engines/llama/load-heartbeat.ts'
import type { MessageFromLlama } from '../../../../src/inference/engines/llama/protocol.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'

it('a load that makes no progress for ten minutes gives no more signs of life', async () => {
  const clock = new ManualClock()
  const sent: MessageFromLlama[] = []
  const signs = startLoadHeartbeat(clock, (message) => sent.push(message))
  const signsWithin = async (ms: number): Promise<number> => {
    sent.length = 0
    await clock.advance(ms)
    return sent.filter(({ kind }) => kind === 'alive').length
  }
  expect(await signsWithin(590_000)).toBe(295)
  signs.report({ stage: 'load', done: 0.11 })
  expect(await signsWithin(590_000)).toBe(295)
  // The smallest progress counts, but ten reports of a stage are enough.
  signs.report({ stage: 'load', done: 0.12 })
  expect(sent.filter(({ kind }) => kind === 'progress')).toEqual([])
  expect(await signsWithin(600_000)).toBe(300)
  expect(await signsWithin(600_000)).toBe(0)
  signs.report({ stage: 'load', done: 0.2 })
  expect(await signsWithin(10_000)).toBe(5)
  signs.stop()
  expect([await signsWithin(10_000), clock.pendingTimers]).toEqual([0, 0])
})
