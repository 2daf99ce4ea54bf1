import { describe, expect, it } from 'vitest'
import { SilenceWatch } from '../../src/runtime/silence-watch.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

function watched(hungMs: number) {
  const clock = new ManualClock()
  const one = { silentMs: 0 }
  const state = { expected: [one], checks: 0, hung: [] as number[], lateMs: 0, timers: 0 }
  const watch = new SilenceWatch({
    clock: {
      now: () => clock.now(),
      monotonicMs: () => clock.monotonicMs() + state.lateMs,
      after: (ms, callback) => {
        state.timers++
        return clock.after(ms, callback)
      },
      nextTurn: (callback) => clock.nextTurn(callback),
    },
    intervalMs: 1000,
    maxSilenceMs: () => hungMs,
    expected: () => state.expected,
    onCheck: () => state.checks++,
    onHung: (hung) => {
      state.hung.push(...hung.map(({ silentMs }) => silentMs))
      state.expected = []
    },
  })
  watch.recordActivity(one)
  return { clock, one, state, watch }
}

describe('SilenceWatch', () => {
  it('SilenceWatch reports what is silent until the limit', async () => {
    const { clock, one, state } = watched(60_000)
    await clock.advance(10_000)
    expect([one.silentMs, state.checks]).toEqual([10_000, 10])
    await clock.advance(49_000)
    expect(state.hung).toEqual([])
    await clock.advance(60_000)
    expect(state.hung).toEqual([60_000])
  })

  it('SilenceWatch begins anew after a sign of life', async () => {
    const { clock, one, state, watch } = watched(20_000)
    for (let at = 0; at < 20; at++) {
      watch.recordActivity(one)
      await clock.advance(19_000)
    }
    expect(state.hung).toEqual([])
  })

  it('SilenceWatch counts from the sign of life, not from the check after it', async () => {
    const { clock, one, state, watch } = watched(20_000)
    await clock.advance(700)
    watch.recordActivity(one)
    await clock.advance(20_200)
    expect([one.silentMs, state.hung]).toEqual([19_300, []])
    await clock.advance(100)
    expect(state.hung).toEqual([20_300])
  })

  it('SilenceWatch reports several at once, before any of them is handled', async () => {
    const { clock, one, state } = watched(5000)
    state.expected = [one, { silentMs: 0 }]
    await clock.advance(6000)
    expect(state.hung).toEqual([5000, 5000])
  })

  it('SilenceWatch runs no timer while nothing is expected', async () => {
    const { clock, one, state, watch } = watched(20_000)
    state.expected = []
    await clock.advance(100_000)
    expect([one.silentMs, state.timers, state.hung]).toEqual([0, 1, []])
    state.expected = [one]
    watch.recordActivity(one)
    await clock.advance(20_000)
    expect(state.hung).toHaveLength(1)
  })

  it('SilenceWatch counts no time in which this process was stopped itself', async () => {
    const { clock, one, state, watch } = watched(20_000)
    await clock.advance(5000)
    expect(watch.lastStallMs).toBe(-Infinity)
    // Time passes, and no timer fires.
    state.lateMs = 100_000
    expect(watch.lastStallMs, 'before the late check').toBe(clock.monotonicMs() + state.lateMs)
    await clock.advance(1000)
    expect([one.silentMs, state.hung]).toEqual([6000, []])
    expect(watch.lastStallMs).toBe(clock.monotonicMs() + state.lateMs)
  })

  it('SilenceWatch reports nothing after a stop', async () => {
    const { clock, state, watch } = watched(20_000)
    watch.stop()
    await clock.advance(100_000)
    expect([state.checks, state.hung]).toEqual([0, []])
  })
})
