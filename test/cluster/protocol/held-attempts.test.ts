import { describe, expect, it } from 'vitest'
import { HeldAttempt, HeldAttempts } from '../../../src/cluster/protocol/agent/held-attempts.ts'
import { defaultResources } from '../../../src/tasks/resources.ts'
import type { TaskSpec } from '../../../src/tasks/spec.ts'

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
  new HeldAttempt('session', 1, { index: 0, uid, attempt }, spec, 1)

describe('the attempts that an agent holds', () => {
  it('held attempts: the rate counts only time with work', () => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    expect(held.work.rate(nowMs)).toBeNull()
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one, nowMs)
      nowMs += 2
      held.markEnded(one, nowMs, nowMs)
      nowMs += 500
    }
    expect(held.work.rate(nowMs)).toBeCloseTo(500)
  })

  it('held attempts: the agent reports how long they keep the node busy', () => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    expect(held.work.workMs).toBe(0)
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one, nowMs)
      nowMs += 10
      held.markEnded(one, nowMs, nowMs)
    }
    expect(held.work.rate(nowMs)).toBeCloseTo(100)
    expect(held.work.workMs).toBe(0)
    for (let count = 0; count < 5; count++) held.add(attemptOf(`later-${count}`), nowMs)
    expect(held.work.workMs).toBeCloseTo(50)
  })

  it.each([
    ['short ones could end faster on a machine that has time for them', 0.1, 640],
    ['not faster than they could', 20, 50],
    ['long ones end as fast as they can', 100, 10],
  ])('tell a rate: %s', (_, lastsMs, rate) => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    for (let count = 0; count < 10; count++) {
      const one = attemptOf(`task-${count}`)
      held.add(one, nowMs)
      nowMs += 100
      one.beganMs = nowMs - lastsMs
      held.markEnded(one, nowMs, nowMs)
    }
    expect(held.work.rate(nowMs)).toBeCloseTo(rate)
    // The remaining tasks still take their full time.
    held.add(attemptOf('last'), nowMs)
    expect(held.work.workMs).toBeCloseTo(100)
  })

  it('held attempts: one short attempt among long ones does not raise the rate', () => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    const rates: (number | null)[] = []
    const lasts = [500, 0.1, 500, ...Array.from({ length: 8 }, () => 0.1)]
    for (const [at, lastsMs] of lasts.entries()) {
      const one = attemptOf(`task-${at}`)
      held.add(one, nowMs)
      nowMs += Math.max(50, lastsMs)
      one.beganMs = nowMs - lastsMs
      held.markEnded(one, nowMs, nowMs)
      rates.push(held.work.rate(nowMs))
    }
    expect(rates.slice(0, 4)).toEqual([2, 20, 2, 20])
    // Many short ones in a row say what the next ones are.
    expect(rates.at(-1)).toBeCloseTo(20 * 64)
  })

  it('held attempts: extra ones are handed back if the driver needs them elsewhere', () => {
    const nowMs = 1000
    const held = new HeldAttempts(nowMs)
    const enqueue = (uid: string, priority: number): void => {
      const one = new HeldAttempt(
        'session',
        1,
        { index: 0, uid, attempt: 1 },
        { ...spec, priority },
        1,
      )
      held.add(one, nowMs)
      held.enqueue(one)
    }
    for (let at = 0; at < 5; at++) enqueue(`low-${at}`, 0)
    for (let at = 0; at < 4; at++) enqueue(`high-${at}`, 10)
    const excess = (canPlace: boolean, waiting: number[], ahead = 2): string[] => {
      const range = { lowest: Math.min(...waiting), highest: Math.max(...waiting) }
      return held
        .findExcess(ahead, { canPlace, range: waiting.length === 0 ? null : range }, nowMs)
        .map(({ uid }) => uid)
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

  it('held attempts: a rate is forgotten when no attempt ends any more', () => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    const [short, long] = [attemptOf('short'), attemptOf('long')]
    held.add(short, nowMs)
    nowMs += 50
    held.markEnded(short, nowMs, nowMs)
    expect(held.work.rate(nowMs)).toBeCloseTo(20)
    held.add(long, nowMs)
    nowMs += 100
    expect(held.work.rate(nowMs)).toBeCloseTo(20)
    nowMs += 1000
    expect(held.work.rate(nowMs)).toBe(0)
  })

  it('held attempts: more are requested in advance if they run out early', () => {
    let nowMs = 1000
    const held = new HeldAttempts(nowMs)
    held.work.hasDriverJobs = true
    const factors: number[] = []
    const runOut = (count: number): void => {
      const one = attemptOf(`task-${count}`)
      held.add(one, nowMs)
      nowMs += 10
      held.markEnded(one, nowMs, nowMs)
      nowMs += 90
      expect(held.work.rate(nowMs)).toBeCloseTo(100)
      factors.push(held.work.aheadFactor)
    }
    for (let count = 0; count < 3; count++) runOut(count)
    held.work.hasDriverJobs = false
    for (let count = 3; count < 7; count++) runOut(count)
    expect(factors).toEqual([2, 4, 8, 4, 2, 1, 1])
  })
})
