import { describe, expect, it } from 'vitest'
import { DeadlineTimer, Deadlines, type HasDeadline } from '../../src/runtime/deadlines.ts'
import type { QueueEntry } from '../../src/runtime/priority-queue.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

class Item implements HasDeadline {
  readonly name: number
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null

  constructor(name: number) {
    this.name = name
  }
}

const open = () => {
  const clock = new ManualClock()
  const expired: number[] = []
  const deadlines = new Deadlines<Item>(clock, ({ name }) => expired.push(name))
  return { clock, expired, deadlines }
}

describe('Deadlines', () => {
  it('many deadlines need one timer and expire in the order of their times', async () => {
    const { clock, expired, deadlines } = open()
    const items = [30, 10, 20].map((name) => new Item(name))
    for (const item of items) deadlines.set(item, item.name)
    await clock.advance(9)
    expect([expired, clock.pendingTimers]).toEqual([[], 1])
    await clock.advance(11)
    expect([expired, clock.pendingTimers]).toEqual([[10, 20], 1])
    await clock.advance(10)
    expect([expired, clock.pendingTimers]).toEqual([[10, 20, 30], 0])
  })

  it('a removed deadline does not expire, and the last one removed clears the timer', async () => {
    const { clock, expired, deadlines } = open()
    const [first, second] = [new Item(1), new Item(2)]
    deadlines.set(first, 10)
    deadlines.set(second, 20)
    deadlines.remove(first)
    deadlines.remove(first)
    await clock.advance(10)
    expect(expired).toEqual([])
    deadlines.remove(second)
    expect(clock.pendingTimers).toBe(0)
  })

  it('an earlier deadline is kept, and its callback may set the later one', async () => {
    const clock = new ManualClock()
    const expired: number[] = []
    const item = new Item(1)
    const deadlines = new Deadlines<Item>(clock, () => {
      expired.push(clock.monotonicMs())
      if (expired.length === 1) deadlines.set(item, 50)
    })
    deadlines.set(item, 40)
    deadlines.set(item, 50)
    deadlines.set(item, 20)
    await clock.advance(100)
    expect(expired).toEqual([20, 50])
  })

  it('a thousand expire per turn, each once, and later ones in their time', async () => {
    const { clock, expired, deadlines } = open()
    const turns: (() => void)[] = []
    clock.nextTurn = (callback) => void turns.push(callback)
    const items = Array.from({ length: 2502 }, (_, at) => new Item(at))
    for (const item of items) deadlines.set(item, item.name < 2500 ? 10 : item.name)
    await clock.advance(10)
    expect([expired.length, turns.length]).toEqual([1000, 1])
    // One that is set meanwhile and falls due expires with the others, not in addition to them.
    const late = new Item(9999)
    deadlines.set(late, 11)
    await clock.advance(1)
    expect([expired.length, turns.length]).toEqual([1000, 1])
    turns.shift()?.()
    await Promise.resolve()
    expect([expired.length, turns.length]).toEqual([2000, 1])
    turns.shift()?.()
    await Promise.resolve()
    expect([expired.length, turns.length, expired.at(-1)]).toEqual([2501, 0, 9999])
    await clock.advance(2490)
    expect(expired.slice(2501)).toEqual([2500, 2501])
    expect(new Set(expired).size).toBe(items.length + 1)
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('DeadlineTimer', () => {
  it('a moment that is set replaces the one before, and Infinity clears it', async () => {
    const clock = new ManualClock()
    const calls: number[] = []
    const timer = new DeadlineTimer(clock, () => calls.push(clock.monotonicMs()))
    timer.set(10)
    timer.set(20)
    expect([timer.dueMs, clock.pendingTimers]).toEqual([20, 1])
    await clock.advance(20)
    expect([calls, timer.dueMs]).toEqual([[20], Infinity])
    timer.set(5)
    await clock.advance(0)
    expect(calls).toEqual([20, 20])
    timer.set(100)
    timer.set(Infinity)
    expect(clock.pendingTimers).toBe(0)
  })
  it('DeadlineTimer waits for the rest when the timer of the system fires early', async () => {
    const clock = new ManualClock()
    const after = clock.after.bind(clock)
    const calls: number[] = []
    const timer = new DeadlineTimer(clock, () => calls.push(clock.monotonicMs()))
    clock.after = (ms, callback) => after(ms - 1, callback)
    timer.set(10)
    clock.after = after
    await clock.advance(9)
    expect(calls).toEqual([])
    await clock.advance(1)
    expect(calls).toEqual([10])
  })
})
