import { describe, expect, it } from 'vitest'
import { HeldAttempt, HeldAttempts } from '../../../src/cluster/agent/held-attempt.ts'
import { defaultResources } from '../../../src/tasks/resources.ts'
import type { TaskSpec } from '../../../src/tasks/spec.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

const spec: TaskSpec = {
  kind: 'function',
  executable: 'nothing',
  definition: { module: 'file:///nothing.js', name: 'nothing' },
  args: [],
  priority: 0,
  timeoutSeconds: null,
  resources: defaultResources,
  workDir: null,
}

const attemptOf = (uid: string, attempt = 1): HeldAttempt =>
  new HeldAttempt('session', { index: 0, uid, attempt }, spec, 1)

describe('the attempts that an agent holds', () => {
  it('held attempts: the rate counts only time with work', async () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    expect(held.rate).toBeNull()
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one)
      await clock.advance(2)
      held.markEnded(one, clock.monotonicMs())
      await clock.advance(500)
    }
    expect(held.rate).toBeCloseTo(500)
  })

  it('held attempts: the agent reports how long they keep the node busy', async () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    expect(held.workMs).toBe(0)
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one)
      await clock.advance(10)
      held.markEnded(one, clock.monotonicMs())
    }
    expect(held.rate).toBeCloseTo(100)
    expect(held.workMs).toBe(0)
    for (let count = 0; count < 5; count++) held.add(attemptOf(`later-${count}`))
    expect(held.workMs).toBeCloseTo(50)
  })

  it.each([
    ['short ones could end faster on a machine that has time for them', 0.1, 640],
    ['not faster than they could', 20, 50],
    ['long ones end as fast as they can', 100, 10],
  ])('tell a rate: %s', async (_, lastsMs, rate) => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one)
      await clock.advance(100)
      one.beganMs = clock.monotonicMs() - lastsMs
      held.markEnded(one, clock.monotonicMs())
    }
    expect(held.rate).toBeCloseTo(rate)
    // The remaining tasks still take their full time.
    held.add(attemptOf('last'))
    expect(held.workMs).toBeCloseTo(100)
  })

  it('held attempts: one short attempt among long ones does not raise the rate', async () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    const rates: (number | null)[] = []
    const lasts = [500, 0.1, 500, ...Array.from({ length: 8 }, () => 0.1)]
    for (const [at, lastsMs] of lasts.entries()) {
      const one = attemptOf(`task-${at}`)
      held.add(one)
      await clock.advance(Math.max(50, lastsMs))
      one.beganMs = clock.monotonicMs() - lastsMs
      held.markEnded(one, clock.monotonicMs())
      rates.push(held.rate)
    }
    expect(rates.slice(0, 4)).toEqual([2, 20, 2, 20])
    // Many short ones in a row say what the next ones are.
    expect(rates.at(-1)).toBeCloseTo(20 * 64)
  })

  it('held attempts: extra ones are handed back if the driver needs them elsewhere', async () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => true)
    const enqueue = (uid: string, priority: number): void => {
      const one = new HeldAttempt(
        'session',
        { index: 0, uid, attempt: 1 },
        { ...spec, priority },
        1,
      )
      held.add(one)
      held.enqueue(one)
    }
    for (let at = 0; at < 5; at++) enqueue(`low-${at}`, 0)
    for (let at = 0; at < 4; at++) enqueue(`high-${at}`, 10)
    const excess = (canPlaceReturned: boolean, waiting: number[], ahead = 2): string[] => {
      const range = { lowest: Math.min(...waiting), highest: Math.max(...waiting) }
      const waitingPriorities = waiting.length === 0 ? null : range
      return held.findExcess(ahead, { canPlaceReturned, waitingPriorities }).map(({ uid }) => uid)
    }
    expect(excess(false, [0])).toEqual(['high-2', 'high-3'])
    expect(excess(false, [0], 1)).toEqual(['high-1', 'high-2', 'high-3'])
    expect(excess(false, [])).toEqual([])
    const low = Array.from({ length: 5 }, (_, at) => `low-${at}`)
    // The tasks that wait at the driver are more urgent and get their slots.
    expect(excess(false, [10])).toEqual(low)
    expect(excess(false, [0, 10])).toEqual(['high-2', 'high-3', ...low])
    expect(excess(false, [10], 6)).toEqual(low.slice(2))
    for (let at = 4; at < 13; at++) enqueue(`high-${at}`, 10)
    // Another node is idle.
    expect(excess(true, [])).toEqual(['high-12', ...low])
    expect(excess(true, [10], 1)).toEqual([...low, 'high-10', 'high-11', 'high-12'])
  })

  it('held attempts: a rate is forgotten when no attempt ends any more', async () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    const [short, long] = [attemptOf('short'), attemptOf('long')]
    held.add(short)
    await clock.advance(50)
    held.markEnded(short, clock.monotonicMs())
    expect(held.rate).toBeCloseTo(20)
    held.add(long)
    await clock.advance(100)
    expect(held.rate).toBeCloseTo(20)
    await clock.advance(1000)
    expect(held.rate).toBe(0)
  })

  it('held attempts: more are requested in advance if they run out early', async () => {
    const clock = new ManualClock()
    let hasMore = true
    const held = new HeldAttempts(clock, () => hasMore)
    const factors: number[] = []
    const runOut = async (count: number): Promise<void> => {
      const one = attemptOf(`task-${count}`)
      held.add(one)
      await clock.advance(10)
      held.markEnded(one, clock.monotonicMs())
      await clock.advance(90)
      expect(held.rate).toBeCloseTo(100)
      factors.push(held.aheadFactor)
    }
    for (let count = 0; count < 3; count++) await runOut(count)
    hasMore = false
    for (let count = 3; count < 7; count++) await runOut(count)
    expect(factors).toEqual([2, 4, 8, 4, 2, 1, 1])
  })

  it('held attempts: the latest attempt of a task is known until its end is recorded', () => {
    const clock = new ManualClock()
    const held = new HeldAttempts(clock, () => false)
    const [first, second] = [attemptOf('task', 1), attemptOf('task', 2)]
    held.add(first)
    held.markEnded(first, clock.monotonicMs())
    expect([held.latestAttempt('task'), held.size]).toEqual([1, 0])
    held.add(second)
    held.markRecorded('task')
    expect([held.latestAttempt('task'), second.isHeld, held.size]).toEqual([2, true, 1])
    held.markEnded(second, clock.monotonicMs())
    held.markRecorded('task')
    expect([held.latestAttempt('task'), held.size]).toEqual([0, 0])
  })
})
