import { expect, it } from 'vitest'
import { loadStorySlot } from '../open-engine.ts'

const sumOf = (scores: ReadonlyMap<number, number>): number =>
  [...scores.values()].reduce((sum, logprob) => sum + Math.exp(logprob), 0)

it('log probabilities of a few tokens are those of the whole vocabulary', async () => {
  const { slot, vocabulary } = await loadStorySlot({ batchSize: 512, contextLength: 256 })
  const text = 'Once upon a time there was a little dog. It had a red ball, and zebra 17 said:'
  const tokens = vocabulary.tokenize(text, { special: false, inner: false })
  // Likely and unlikely ones.
  const followers = tokens.map((token, at) =>
    at % 3 === 0 ? 500 + 700 * at : (tokens[at + 1] ?? token),
  )
  await slot.keep(0)
  const all = await slot.score(tokens, followers, vocabulary.size)
  await slot.keep(0)
  const few = await slot.score(tokens, followers, 3)
  expect(few).toHaveLength(tokens.length)
  for (const [at, scores] of few.entries()) {
    const whole = all[at] ?? new Map<number, number>()
    expect(whole.size).toBe(vocabulary.size)
    // llama.cpp adds them as 32-bit floats.
    expect(sumOf(whole)).toBeCloseTo(1, 2)
    const follower = followers[at] ?? 0
    expect([...scores.keys()].slice(0, 3)).toEqual([...whole.keys()].slice(0, 3))
    expect(scores.has(follower)).toBe(true)
    for (const [token, logprob] of scores) {
      expect(Math.abs(logprob - (whole.get(token) ?? 0))).toBeLessThan(2e-4)
    }
  }
})
