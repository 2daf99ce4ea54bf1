import { describe, expect, it } from 'vitest'
import type {
  Sampling,
  TokenLogprob,
} from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { storyModel, useEngine } from '../open-engine.ts'

const animal = { kind: 'text', text: 'The little' } as const
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 1 }
const hot = { ...greedy, temperature: 1 }

describe.each([
  ['the native context', true],
  ["the library's interface", false],
])('sampling with %s', (_, usesNativeContext) => {
  const engine = useEngine(storyModel, { usesNativeContext })

  async function write(
    sampling: Partial<Sampling>,
    text: string = animal.text,
  ): Promise<RecordingGeneration> {
    const listener = new RecordingGeneration()
    await engine().generate([toRequest({ kind: 'text', text }, sampling)], listener)
    return listener
  }

  /** The first tokens of answers with different seeds, each with how often it came. */
  async function drawn(count: number, sampling: Partial<Sampling>): Promise<Map<string, number>> {
    const listener = new RecordingGeneration()
    const requests = Array.from({ length: count }, (_none, seed) =>
      toRequest(animal, { ...hot, ...sampling, seed }, { id: `${seed}` }),
    )
    await engine().generate(requests, listener)
    const counts = new Map<string, number>()
    for (const { id } of requests) {
      const text = listener.textOf(id)
      counts.set(text, (counts.get(text) ?? 0) + 1)
    }
    return counts
  }

  async function logprobsOf(
    sampling: Partial<Sampling>,
    text?: string,
  ): Promise<readonly TokenLogprob[]> {
    const { deltas } = await write({ ...greedy, logprobs: 20, ...sampling }, text)
    return deltas.flatMap(({ logprobs = [] }) => logprobs)
  }

  it('top_k: tokens come as often as the model says, and no others', async () => {
    const [{ top } = { top: [] }] = await logprobsOf({})
    const four = top.slice(0, 4)
    const all = four.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0)
    const count = 256
    const counts = await drawn(count, { topK: 4 })
    expect([...counts.keys()].toSorted()).toEqual(four.map(({ token }) => token).toSorted())
    for (const { token, logprob } of four) {
      const share = Math.exp(logprob) / all
      const deviation = Math.sqrt(count * share * (1 - share))
      expect(Math.abs((counts.get(token) ?? 0) - count * share)).toBeLessThan(4 * deviation)
    }
  })

  it('min_p: leaves out tokens below that share of the likeliest', async () => {
    const [{ top } = { top: [] }] = await logprobsOf({})
    const least = (top[0]?.logprob ?? 0) + Math.log(0.2)
    const allowed = top.filter(({ logprob }) => logprob > least).map(({ token }) => token)
    expect(allowed.length).toBeGreaterThan(1)
    const counts = await drawn(64, { temperature: 2, minP: 0.2 })
    expect([...counts.keys()].filter((token) => !allowed.includes(token))).toEqual([])
    expect(counts.size).toBeGreaterThan(1)
    expect((await drawn(64, { temperature: 2 })).size).toBeGreaterThan(20)
  })

  it('top_p: leaves out what comes after that probability', async () => {
    const [{ top } = { top: [] }] = await logprobsOf({})
    let sum = 0
    const allowed = top.filter(({ logprob }) => {
      const isIn = sum < 0.3
      sum += Math.exp(logprob)
      return isIn
    })
    const counts = await drawn(64, { temperature: 2, topP: 0.3 })
    const names = new Set(allowed.map(({ token }) => token))
    expect([...counts.keys()].filter((token) => !names.has(token))).toEqual([])
  })

  it('logit_bias: -100 bans a token, 100 allows no other', async () => {
    const [{ top } = { top: [] }] = await logprobsOf({})
    const [first, second] = top.map(({ token }) => token)
    const idOf = async (token = ''): Promise<number> => {
      const tokens = await engine().tokenize(`x${token}`)
      return tokens.at(-1) ?? 0
    }
    const ban = { [await idOf(first)]: -100 }
    expect((await write({ ...greedy, logitBias: ban })).textOf()).toBe(second)
    expect((await drawn(64, { logitBias: ban })).has(first ?? '')).toBe(false)
    const force = { [await idOf(' zebra')]: 100 }
    const forced = await drawn(16, { temperature: 2, logitBias: force })
    expect(forced.size).toBe(1)
    expect(forced.keys().next().value).not.toBe(first)
  })

  it.each([
    [0, 0],
    [1.5, 0],
    [0, 2],
    [0.5, -0.4],
    [-0.3, 1],
  ])(
    'frequency_penalty %d, presence_penalty %d: each choice fits the formula',
    async (...given) => {
      const [frequencyPenalty, presencePenalty] = given
      const maxTokens = 15
      const sampling = { ...greedy, maxTokens, frequencyPenalty, presencePenalty, ignoreEos: true }
      const chosen = await logprobsOf(sampling, 'dog dog dog dog dog dog dog dog')
      expect(chosen).toHaveLength(maxTokens)
      const counts = new Map<string, number>()
      for (const { token, top } of chosen) {
        const adjusted = top.map((one) => {
          const count = counts.get(one.token) ?? 0
          const presence = count > 0 ? presencePenalty : 0
          return { token: one.token, logit: one.logprob - count * frequencyPenalty - presence }
        })
        const best = Math.max(...adjusted.map(({ logit }) => logit))
        // Rounding may decide between two that are as good.
        const good = adjusted.filter(({ logit }) => logit > best - 1e-3).map((one) => one.token)
        expect(good).toContain(token)
        counts.set(token, (counts.get(token) ?? 0) + 1)
      }
      const repeated = Math.max(...counts.values())
      if (frequencyPenalty > 0) expect(repeated).toBeLessThan(maxTokens)
    },
  )

  it('frequency_penalty: fewer tokens come again', async () => {
    const distinct = async (frequencyPenalty: number): Promise<number> => {
      const sampling = { ...greedy, maxTokens: 40, frequencyPenalty, ignoreEos: true }
      return new Set((await logprobsOf(sampling)).map(({ token }) => token)).size
    }
    expect(await distinct(2)).toBeGreaterThan(await distinct(0))
  })

  it('repetition_penalty: makes tokens of the prompt less likely', async () => {
    const text = 'dog dog dog dog dog dog dog dog'
    const [plain, penalized] = [
      (await write({ ...greedy, maxTokens: 8 }, text)).textOf(),
      (await write({ ...greedy, maxTokens: 8, repetitionPenalty: 10 }, text)).textOf(),
    ]
    expect(plain).toContain('dog')
    expect(penalized).not.toContain('dog')
  })

  it('seed: the same one gives the same text, whatever else is sampled', async () => {
    const sampling = { ...hot, maxTokens: 12, seed: 77 }
    const alone = (await write(sampling)).textOf()
    expect((await write(sampling)).textOf()).toBe(alone)
    expect((await write({ ...sampling, seed: 78 })).textOf()).not.toBe(alone)
  })
})
