import { describe, expect, it } from 'vitest'
import { commonPrefixLength } from '../../../../src/inference/engines/llama/generation.ts'
import { chooseSlot, type FreeSlot } from '../../../../src/inference/engines/llama/step-loop.ts'

const slot = (at: number, shared = 0, lastUsed = 0): FreeSlot => ({
  index: at,
  sharedTokens: shared,
  lastUsed,
})
const choose = (free: readonly FreeSlot[], running: readonly number[], answerTokens = 64) =>
  chooseSlot(free, new Set(running), answerTokens)?.index

describe('chooseSlot', () => {
  it.each<[string, number | undefined, readonly FreeSlot[], readonly number[]]>([
    ['none where none is free', undefined, [], [0]],
    ['the lowest of equal ones', 0, [slot(0), slot(1)], []],
    ['the longest common prefix where none runs', 2, [slot(0), slot(1, 20), slot(2, 30)], []],
    ['the one used the longest ago', 1, [slot(0, 0, 9), slot(1, 0, 3), slot(2, 0, 5)], []],
    ['one that was never used', 2, [slot(0, 0, 9), slot(1, 0, 3), slot(2)], []],
    ['not the one whose first token is the same', 1, [slot(0, 1, 5), slot(1, 0, 2)], []],
    ['a neighbour of those that run', 4, [slot(0), slot(4), slot(9)], [5, 6, 7]],
    ['a gap before an older neighbour', 1, [slot(1, 0, 9), slot(2, 0, 9), slot(4)], [0, 3]],
    ['the gap between two that run', 2, [slot(0), slot(2), slot(4)], [1, 3]],
    ['a neighbour before a short prefix', 1, [slot(1), slot(5, 100)], [0]],
    ['a long prefix before a neighbour', 5, [slot(1), slot(5, 600)], [0]],
  ])('chooseSlot takes %s', (_, expected, free, running) => {
    expect(choose(free, running)).toBe(expected)
  })

  it('a gap costs less for a short answer', () => {
    const free = [slot(1), slot(5, 100)]
    expect(choose(free, [0], 4)).toBe(5)
    expect(choose(free, [0], 40)).toBe(1)
  })

  it('distinct prompts: running slots are neighbours as they are without a cache', () => {
    for (const clients of [4, 8, 12, 16]) {
      const cached = passesOf(clients, (free, running) => chooseSlot(free, running, 64)?.index)
      const plain = passesOf(clients, (free) => free[0]?.index)
      expect(cached).toBeLessThanOrEqual(plain * 1.05)
    }
  })
})

type Choose = (free: readonly FreeSlot[], running: ReadonlySet<number>) => number | undefined

/** Passes of many steps, one for each group of neighbours, with requests of random lengths. */
function passesOf(clients: number, chooseAt: Choose): number {
  const left = Array.from({ length: 16 }, () => 0)
  const lastUsed = left.map(() => 0)
  let [random, passes, admitted] = [7, 0, 0]
  for (let step = 0; step < 5000; step++) {
    const isRunning = (at: number): boolean => (left[at] ?? 0) > 0
    while (left.filter((steps) => steps > 0).length < clients) {
      const free = left.flatMap((steps, at) => (steps > 0 ? [] : slot(at, 1, lastUsed[at])))
      const running = new Set([...left.keys()].filter(isRunning))
      const at = chooseAt(free, running) ?? 0
      random = (random * 48_271) % 2_147_483_647
      left[at] = 1 + (random % 100)
      lastUsed[at] = ++admitted
    }
    passes += left.filter((_, at) => isRunning(at) && !isRunning(at - 1)).length
    for (const [at, steps] of left.entries()) left[at] = Math.max(0, steps - 1)
  }
  return passes
}

describe('sharedLength', () => {
  it.each([
    [[], [1, 2], 0],
    [[1, 2], [1, 2], 1],
    [[1, 2, 3], [1, 2], 1],
    [[1, 2], [1, 2, 3], 2],
    [[1, 5, 3], [1, 2, 3], 1],
  ])('%j and %j share %d', (held, prompt, expected) => {
    expect(commonPrefixLength(held, prompt)).toBe(expected)
  })
})
