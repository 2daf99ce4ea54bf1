import { describe, expect, it } from 'vitest'
import { SilenceWatch } from '../../../../src/inference/engines/llama/silence-watch.ts'
import { ManualClock } from '../../../../src/testing/manual-clock.ts'

function watched(hungMs: number) {
  const clock = new ManualClock()
  const state = { isBusy: true, hung: [] as number[], lateMs: 0 }
  const watch = new SilenceWatch({
    clock: {
      now: () => clock.now(),
      monotonicMs: () => clock.monotonicMs() + state.lateMs,
      after: (ms, callback) => clock.after(ms, callback),
      nextTurn: (callback) => clock.nextTurn(callback),
    },
    hungMs,
    isBusy: () => state.isBusy,
    onHung: (silentMs) => void state.hung.push(silentMs),
  })
  return { clock, state, watch }
}

/** In small steps, as time passes. */
async function pass(clock: ManualClock, ms: number): Promise<void> {
  for (let left = ms; left > 0; left -= 500) await clock.advance(Math.min(left, 500))
}

describe('SilenceWatch', () => {
  it('SilenceWatch reports 10 s of silence, and calls once after the limit', async () => {
    const { clock, state, watch } = watched(60_000)
    watch.sign()
    await pass(clock, 9_500)
    expect(watch.problem).toBeNull()
    await pass(clock, 1_000)
    expect(watch.problem).toBe('has given no sign of life for 10 s')
    await pass(clock, 48_000)
    expect(state.hung).toEqual([])
    await pass(clock, 60_000)
    expect(state.hung).toHaveLength(1)
    expect(watch.problem).toBeNull()
  })

  it('a sign of life begins anew', async () => {
    const { clock, state, watch } = watched(20_000)
    for (let at = 0; at < 20; at++) {
      watch.sign()
      await pass(clock, 9_000)
      expect(watch.problem).toBeNull()
    }
    expect(state.hung).toEqual([])
  })

  it('silence without work means nothing, and no timer runs', async () => {
    const { clock, state, watch } = watched(20_000)
    watch.sign()
    state.isBusy = false
    await pass(clock, 100_000)
    expect([watch.problem, state.hung]).toEqual([null, []])
    state.isBusy = true
    await pass(clock, 100_000)
    expect(state.hung).toEqual([])
    watch.sign()
    await pass(clock, 21_000)
    expect(state.hung).toHaveLength(1)
  })

  it('a process that was stopped itself waits for signs that it has not read', async () => {
    const { clock, state, watch } = watched(20_000)
    watch.sign()
    // Time passes, and no timer fires.
    state.lateMs = 100_000
    await pass(clock, 9_000)
    expect(state.hung).toEqual([])
    await pass(clock, 3_000)
    expect(state.hung).toHaveLength(1)
  })

  it('SilenceWatch reports nothing after a stop', async () => {
    const { clock, state, watch } = watched(20_000)
    watch.sign()
    watch.stop()
    watch.sign()
    await pass(clock, 100_000)
    expect([watch.problem, state.hung]).toEqual([null, []])
  })
})
