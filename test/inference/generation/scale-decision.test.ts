import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  decideScale,
  initialScaleState,
  type ScaleConfig,
  type ScaleInput,
} from '../../../src/inference/generation/autoscaler.ts'
import { assertProperty } from '../../property.ts'

const config: ScaleConfig = {
  minWorkers: 1,
  maxWorkers: 16,
  targetOngoingRequests: 4,
  spinUpSeconds: 3,
  spinDownSeconds: 10,
}
const quiet = { running: 0, queued: 0, starting: 0, oldestWaitMs: 0, recentArrivals: 0 }

type Seen = Partial<Omit<ScaleInput, 'nowMs' | 'workers'>>

/** The targets of ticks a second apart; each target is applied before the next tick. */
function follow(
  ticks: readonly Seen[],
  workers = 1,
  settings: Partial<ScaleConfig> = {},
): number[] {
  let [state, count] = [initialScaleState, workers]
  return ticks.map((seen, second) => {
    const input = { ...quiet, ...seen, workers: count, nowMs: 5000 + second * 1000 }
    const decision = decideScale({ ...config, ...settings }, state, input)
    state = decision.state
    count = decision.target
    return count
  })
}

const times = (count: number, seen: Seen): Seen[] => Array.from({ length: count }, () => seen)

describe('scaling up', () => {
  it('scaling up adds workers after spinUpSeconds of higher demand, at most doubling', () => {
    expect(follow(times(12, { queued: 40 }))).toEqual([1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 8])
  })

  it('scaling up adds none for a short peak', () => {
    const peak = [{ queued: 40 }, { queued: 40 }, {}, {}, {}, {}, {}, {}, {}]
    expect(follow([...times(5, {}), ...peak])).toEqual(Array.from({ length: 14 }, () => 1))
  })

  it('scaling up adds workers immediately when five prompts arrive within three seconds', () => {
    expect(follow([{}, { queued: 5, recentArrivals: 5 }])).toEqual([1, 2])
    expect(follow([{}, { queued: 5, recentArrivals: 4 }])).toEqual([1, 1])
    expect(follow([{}, { running: 4, recentArrivals: 5 }])).toEqual([1, 1])
    expect(follow(times(4, { queued: 40, recentArrivals: 40 }))).toEqual([2, 4, 8, 10])
  })

  it('scaling up adds one worker for an old queue, and another if that did not help', () => {
    const old = { running: 1, queued: 1, oldestWaitMs: 3001 }
    expect(follow(times(8, old))).toEqual([2, 2, 2, 3, 3, 3, 4, 4])
    expect(follow(times(8, { ...old, oldestWaitMs: 3000 }))).toEqual(Array(8).fill(1))
  })

  it('scaling up adds workers without delay when spinUpSeconds is 0', () => {
    expect(follow(times(3, { queued: 40 }), 1, { spinUpSeconds: 0 })).toEqual([2, 4, 8])
  })

  it('scaling stays within minWorkers and maxWorkers', () => {
    expect(follow(times(3, { queued: 999, recentArrivals: 9 }), 3, { maxWorkers: 5 })).toEqual([
      5, 5, 5,
    ])
    expect(follow([{}], 0, { minWorkers: 3 })).toEqual([3])
    expect(follow([{}], 9, { maxWorkers: 5 })).toEqual([5])
  })
})

describe('scaling down', () => {
  it('scaling down removes one worker at a time, each after spinDownSeconds', () => {
    const targets = follow(times(32, {}), 4)
    expect(targets.slice(0, 10)).toEqual(Array(10).fill(4))
    expect(targets.slice(10, 20)).toEqual(Array(10).fill(3))
    expect(targets.slice(20, 30)).toEqual(Array(10).fill(2))
    expect(targets.slice(30)).toEqual([1, 1])
  })

  it('scaling down starts spinDownSeconds again when load comes in between', () => {
    const busy = { running: 16, recentArrivals: 5 }
    const targets = follow([...times(9, {}), ...times(3, busy), ...times(9, {})], 4)
    expect(new Set(targets)).toEqual(new Set([4]))
  })

  it('scaling down never goes below minWorkers', () => {
    expect(follow(times(60, {}), 3, { minWorkers: 2 }).at(-1)).toBe(2)
  })
})

it('any input: the target stays in bounds, at most doubles and drops by one at most', () => {
  const seen = fc.record({
    running: fc.nat(500),
    queued: fc.nat(5000),
    oldestWaitMs: fc.nat(60_000),
    recentArrivals: fc.nat(64),
    starting: fc.nat(3),
    stepMs: fc.integer({ min: -1000, max: 400_000 }),
  })
  const settings = fc
    .record({
      minWorkers: fc.integer({ min: 1, max: 8 }),
      extra: fc.nat(20),
      targetOngoingRequests: fc.double({ min: 0.1, max: 64, noNaN: true }),
      spinUpSeconds: fc.nat(10),
      spinDownSeconds: fc.nat(300),
    })
    .map(({ extra, ...rest }) => ({ ...rest, maxWorkers: rest.minWorkers + extra }))
  assertProperty(
    fc.property(settings, fc.array(seen, { maxLength: 60 }), (chosen, ticks) => {
      let [state, workers, nowMs] = [initialScaleState, chosen.minWorkers, 0]
      for (const { stepMs, ...rest } of ticks) {
        nowMs += stepMs
        const { state: next, target } = decideScale(chosen, state, { ...rest, nowMs, workers })
        expect(target).toBeGreaterThanOrEqual(Math.max(chosen.minWorkers, workers - 1))
        expect(target).toBeLessThanOrEqual(Math.min(chosen.maxWorkers, workers * 2))
        state = next
        workers = target
      }
    }),
  )
})
