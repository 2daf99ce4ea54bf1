import { describe, expect, it } from 'vitest'
import { BudgetedQueue, TurnBudget } from '../../src/runtime/turn-budget.ts'
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

  it('what the work itself adds is processed in the same turn while the budget lasts', async () => {
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
})
