import { describe, expect, it } from 'vitest'
import {
  BudgetedQueue,
  type Steps,
  StepScheduler,
  TurnBudget,
} from '../../src/runtime/turn-budget.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A clock whose turns come when the test says so. */
class TurnClock extends ManualClock {
  readonly turns: (() => void)[] = []

  override nextTurn(callback: () => void): void {
    this.turns.push(callback)
  }

  async turn(): Promise<void> {
    for (const callback of this.turns.splice(0)) callback()
    await new Promise((resolve) => setImmediate(resolve))
  }
}

const microtasks = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

describe('TurnBudget', () => {
  it('a budget is whole again in the next turn, which all who wait share', async () => {
    const clock = new TurnClock()
    const budget = new TurnBudget(clock, 3)
    budget.spend(2)
    budget.spend()
    expect([budget.left, clock.turns.length]).toEqual([0, 0])
    const waits = [budget.nextTurn(), budget.nextTurn()]
    expect(clock.turns).toHaveLength(1)
    await clock.turn()
    await Promise.all(waits)
    expect([budget.left, clock.turns.length]).toEqual([3, 0])
  })

  it('a timed budget ends when its time has passed since the first item of a turn', async () => {
    const clock = new TurnClock()
    const budget = new TurnBudget(clock, 100, 10)
    await clock.advance(50)
    expect(budget.left).toBe(100)
    budget.spend()
    await clock.advance(10)
    expect(budget.left).toBe(99)
    await clock.advance(1)
    expect(budget.left).toBe(0)
    await clock.turn()
    expect([budget.left, clock.turns.length]).toEqual([100, 0])
  })
})

describe('BudgetedQueue', () => {
  const open = (perTurn: number) => {
    const clock = new TurnClock()
    const calls: number[][] = []
    const budget = new TurnBudget(clock, perTurn)
    const queue = new BudgetedQueue<number>(budget, (items) => void calls.push([...items]))
    return { clock, calls, queue }
  }

  it('items added together are processed together once the caller has returned', async () => {
    const { clock, calls, queue } = open(5)
    for (const item of [1, 2, 3]) queue.add(item)
    expect(calls).toEqual([])
    await microtasks()
    expect([calls, clock.turns.length]).toEqual([[[1, 2, 3]], 0])
  })

  it('items beyond the budget of a turn are processed in the turns that follow', async () => {
    const { clock, calls, queue } = open(2)
    for (const item of [1, 2, 3, 4, 5]) queue.add(item)
    await microtasks()
    expect(calls).toEqual([[1, 2]])
    await clock.turn()
    expect(calls).toEqual([
      [1, 2],
      [3, 4],
    ])
    await clock.turn()
    expect([calls, clock.turns.length]).toEqual([[[1, 2], [3, 4], [5]], 0])
  })

  it('an item that comes when the budget of the turn is used up waits for the next', async () => {
    const { clock, calls, queue } = open(2)
    for (const item of [1, 2]) queue.add(item)
    await microtasks()
    queue.add(3)
    await microtasks()
    expect(calls).toEqual([[1, 2]])
    await clock.turn()
    expect(calls).toEqual([[1, 2], [3]])
  })

  it('BudgetedQueue processes added work in the same turn while the budget lasts', async () => {
    const clock = new TurnClock()
    const calls: number[] = []
    const queue = new BudgetedQueue<number>(new TurnBudget(clock, 3), ([item = 0]) => {
      calls.push(item)
      queue.add(item + 1)
    })
    queue.add(1)
    await microtasks()
    expect(calls).toEqual([1, 2, 3])
    await clock.turn()
    expect(calls).toEqual([1, 2, 3, 4, 5, 6])
  })

  it('with a timed budget, items that take too long leave the others to later turns', async () => {
    const clock = new TurnClock()
    const calls: number[] = []
    const queue = new BudgetedQueue<number>(new TurnBudget(clock, 100, 10), ([item = 0]) => {
      calls.push(item)
      void clock.advance(6)
    })
    for (const item of [1, 2, 3, 4, 5]) queue.add(item)
    await microtasks()
    expect(calls).toEqual([1, 2])
    await clock.turn()
    expect(calls).toEqual([1, 2, 3, 4])
    await clock.turn()
    expect(calls).toEqual([1, 2, 3, 4, 5])
  })
})

describe('StepScheduler', () => {
  const open = () => {
    const clock = new TurnClock()
    const log: string[] = []
    /** Work of so many steps of a millisecond each. */
    function* work(name: string, steps: number): Steps<string> {
      for (let step = 1; step <= steps; step++) {
        if (step > 1) yield
        log.push(`${name}${step}`)
        void clock.advance(1)
      }
      return name
    }
    const scheduler = new StepScheduler(clock, 3)
    const { signal } = new AbortController()
    return { clock, log, scheduler, work, signal }
  }

  it('work of half a turn is done at once, without a promise', () => {
    const { clock, scheduler, work, signal } = open()
    expect(scheduler.run(work('a', 1), signal)).toBe('a')
    expect(clock.turns).toEqual([])
    expect(scheduler.run(work('b', 1), signal)).toBe('b')
    expect(clock.turns).toHaveLength(1)
  })

  it('longer work gets its time in each turn, and shares it with other work', async () => {
    const { clock, log, scheduler, work, signal } = open()
    const results = [scheduler.run(work('a', 10), signal), scheduler.run(work('b', 7), signal)]
    expect(log.splice(0)).toEqual(['a1', 'a2', 'b1'])
    const turns: string[][] = []
    while (clock.turns.length > 0) {
      expect(clock.turns).toHaveLength(1)
      await clock.turn()
      turns.push(log.splice(0))
    }
    expect(turns).toEqual([
      ['a3', 'a4', 'a5'],
      ['b2', 'b3', 'b4'],
      ['a6', 'a7', 'a8'],
      ['b5', 'b6', 'b7'],
      ['a9', 'a10'],
    ])
    expect(await Promise.all(results.map(async (result) => result))).toEqual(['a', 'b'])
  })

  it('row 116: a burst of long work holds the turn of its arrival for one budget', async () => {
    const { clock, log, scheduler, work, signal } = open()
    const burst = Array.from({ length: 100 }, (_, at) => scheduler.run(work(`${at}-`, 10), signal))
    const turns = [log.splice(0).length]
    for (; clock.turns.length > 0; await clock.turn()) turns.push(log.splice(0).length)
    expect(Math.max(...turns)).toBe(3)
    expect(await Promise.all(burst.map(async (one) => one))).toHaveLength(100)
    expect(scheduler.run(work('short', 1), signal)).toBe('short')
  })

  it('work whose signal is aborted ends before its next turn', async () => {
    const { clock, log, scheduler, work } = open()
    const abort = new AbortController()
    const result = scheduler.run(work('a', 10), abort.signal)
    abort.abort(new Error('gone'))
    await Promise.all([expect(result).rejects.toThrow('gone'), clock.turn()])
    expect(log).toEqual(['a1', 'a2'])
    expect(clock.turns).toEqual([])
  })

  it('work that throws rejects its promise and leaves other work alone', async () => {
    const { clock, scheduler, work, signal } = open()
    function* failing(): Steps<never> {
      void clock.advance(5)
      yield
      throw new Error('broken')
    }
    const results = [scheduler.run(failing(), signal), scheduler.run(work('a', 4), signal)]
    const settled = Promise.allSettled(results.map(async (result) => result))
    await clock.turn()
    await clock.turn()
    expect(await settled).toMatchObject([
      { status: 'rejected', reason: { message: 'broken' } },
      { status: 'fulfilled', value: 'a' },
    ])
  })
})
