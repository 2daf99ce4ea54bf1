import { expect, it, onTestFinished, vi } from 'vitest'
import * as native from '../../../../../src/inference/engines/llama/evaluation/native-context.ts'
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
  await slot.truncate(0)
  const all = await slot.score(tokens, followers, vocabulary.size)
  await slot.truncate(0)
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

it('row 118: a client with log probabilities reads a few tokens, not the vocabulary', async () => {
  const { slot, vocabulary, greedy } = await loadStorySlot({ batchSize: 64, contextLength: 128 })
  const sample = vi.spyOn(native.NativeContext.prototype, 'sample')
  onTestFinished(() => sample.mockRestore())
  const prompt = vocabulary.tokenize('Once upon a time', { special: true, inner: false })
  const stream = slot.generate(prompt, { ...greedy, logprobs: 5 })
  for (let at = 0; at < 10; at++) expect((await stream.next()).logprobs?.size).toBe(5)
  await stream.close()
  const samples = await Promise.all(sample.mock.results.map(({ value }) => value))
  const sizes = samples.map(([, probabilities = []]) => probabilities.length / 2)
  expect(Math.max(...sizes)).toBe(40)
  expect(vocabulary.size).toBe(32_000)
})
