import { describe, expect, it } from 'vitest'
import type {
  GenerationInput,
  PromptReport,
  Sampling,
  TokenLogprob,
} from '../../../../../src/inference/generation/inference-engine.ts'
import { byRun } from '../../../../long-run.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { storyModel, useEngine } from '../open-engine.ts'

const animal = { kind: 'text', text: 'The little' } as const
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 1 }
const hot = { ...greedy, temperature: 1 }

const once = { kind: 'text', text: 'Once upon a time' } as const
const withLogprobs = { ...greedy, maxTokens: 6, logprobs: 5 }
/** Longer prompts are evaluated in several passes. */
const batchSize = 16

describe('the choice of tokens', () => {
  const engine = useEngine(storyModel, { batchSize })

  describe('sampling', () => {
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

    let scored: ReturnType<typeof logprobsOf> | undefined
    /** The likeliest tokens after the prompt of most tests, which are the same for all of them. */
    async function likeliest(): Promise<TokenLogprob['top']> {
      const [first] = await (scored ??= logprobsOf({}))
      return first?.top ?? []
    }

    it('top_k: tokens come as often as the model says, and no others', async () => {
      const top = await likeliest()
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
      const top = await likeliest()
      const min = (top[0]?.logprob ?? 0) + Math.log(0.2)
      const allowed = top.filter(({ logprob }) => logprob > min).map(({ token }) => token)
      expect(allowed.length).toBeGreaterThan(1)
      const counts = await drawn(64, { temperature: 2, minP: 0.2 })
      expect([...counts.keys()].filter((token) => !allowed.includes(token))).toEqual([])
      expect(counts.size).toBeGreaterThan(1)
      expect((await drawn(64, { temperature: 2 })).size).toBeGreaterThan(20)
    })

    it('a temperature close to 0 takes the likeliest token, as 0 does', async () => {
      const top = await likeliest()
      expect([...(await drawn(8, { temperature: 1e-40 })).keys()]).toEqual([top[0]?.token])
    })

    it('top_p: leaves out what comes after that probability', async () => {
      const top = await likeliest()
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
      const top = await likeliest()
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
        const maxTokens = byRun(8, 15)
        const sampling = {
          ...greedy,
          maxTokens,
          frequencyPenalty,
          presencePenalty,
          ignoreEos: true,
        }
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

  describe('log probabilities', () => {
    async function write(
      sampling: Partial<Sampling>,
      input: GenerationInput = once,
    ): Promise<{ text: string; logprobs: readonly TokenLogprob[]; prompt?: PromptReport }> {
      const listener = new RecordingGeneration()
      await engine().generate([toRequest(input, { ...withLogprobs, ...sampling })], listener)
      const logprobs = listener.deltas.flatMap((delta) => delta.logprobs ?? [])
      const prompt = listener.deltas.find((delta) => delta.prompt !== undefined)?.prompt
      const text = listener.textOf()
      return prompt === undefined ? { text, logprobs } : { text, logprobs, prompt }
    }

    it("log probabilities are the model's own, whatever changes the choice", async () => {
      const [plain] = (await write({ maxTokens: 1 })).logprobs
      const changes: Partial<Sampling>[] = [
        { temperature: 0.1, seed: 1 },
        { temperature: 2, topK: 1, seed: 1 },
        { temperature: 1, topP: 0.01, seed: 1 },
        { temperature: 1, minP: 1, seed: 1 },
        { repetitionPenalty: 1.2 },
        { logitBias: { 2: 3 } },
        { format: { kind: 'json_object' } },
      ]
      for (const change of changes) {
        const [changed] = (await write({ ...change, maxTokens: 1 })).logprobs
        expect(changed?.top).toHaveLength(5)
        for (const [at, { token, logprob }] of (changed?.top ?? []).entries()) {
          expect(token).toBe(plain?.top[at]?.token)
          expect(logprob).toBeCloseTo(plain?.top[at]?.logprob ?? 0, 3)
        }
      }
    })

    it.each([0, 1, 20])('top_logprobs %d has as many entries for every token', async (count) => {
      const sampling = { temperature: 1.5, seed: 4, topP: 0.5, topK: 3, maxTokens: 4 }
      const { logprobs } = await write({ ...sampling, logprobs: count })
      expect(logprobs).toHaveLength(4)
      for (const { top, token, logprob } of logprobs) {
        expect(top).toHaveLength(count)
        const sorted = top.map((one) => one.logprob).toSorted((one, other) => other - one)
        expect(top.map((one) => one.logprob)).toEqual(sorted)
        const same = top.find((one) => one.token === token)
        expect(same?.logprob ?? logprob).toBe(logprob)
        expect(logprob).toBeLessThanOrEqual(0)
      }
    })

    it('a token that is not among the likeliest has its own log probability', async () => {
      const [likely] = (await write({ logprobs: 20, maxTokens: 1 })).logprobs
      const wanted = likely?.top[15]
      const [id = 0] = (await engine().tokenize(`x${wanted?.token}`)).slice(-1)
      const force = { logprobs: 2, logitBias: { [id]: 100 }, maxTokens: 1 }
      const [forced] = (await write(force)).logprobs
      expect(forced?.token).toBe(wanted?.token)
      expect(forced?.logprob).toBeCloseTo(wanted?.logprob ?? 0, 3)
      expect(forced?.top).toHaveLength(2)
    })

    it('a prompt is scored as the same tokens were when they were generated', async () => {
      const written = await write({ maxTokens: 8 })
      const input = { kind: 'text', text: `${once.text}${written.text}` } as const
      const { prompt } = await write({ echo: true, maxTokens: 1 }, input)
      expect(prompt?.text).toBe(input.text)
      const [first, ...rest] = prompt?.logprobs ?? []
      expect(first).toEqual({ token: 'Once', logprob: null, top: [] })
      expect(rest.every(({ top }) => top.length === 5)).toBe(true)
      expect(prompt?.logprobs.map(({ token }) => token).join('')).toBe(input.text)
      const scored = rest.slice(-written.logprobs.length)
      for (const [at, { token, logprob }] of written.logprobs.entries()) {
        expect(scored[at]?.token).toBe(token)
        expect(scored[at]?.logprob).toBeCloseTo(logprob, 2)
      }
    })

    it('a prompt of token ids is taken as it is', async () => {
      const tokens = await engine().tokenize('Once upon a time there was')
      const { prompt } = await write(
        { echo: true, maxTokens: 1 },
        { kind: 'text', text: '', tokens },
      )
      expect(prompt?.logprobs).toHaveLength(tokens.length)
      expect(prompt?.logprobs[0]?.logprob).toBeNull()
      expect(prompt?.text.trim()).toBe('Once upon a time there was')
      const begun = [1, ...tokens]
      const plain = { maxTokens: 8, logprobs: null }
      const same = await write(plain, { kind: 'text', text: '', tokens: begun })
      const text = await write(plain, { kind: 'text', text: 'Once upon a time there was' })
      expect(same.text).toBe(text.text)
    })

    it('a long prompt is scored in several passes', async () => {
      const text = 'The cat sat. '.repeat(6).trim()
      const { prompt } = await write(
        { echo: true, maxTokens: 1, logprobs: 0 },
        { kind: 'text', text },
      )
      const logprobs = prompt?.logprobs ?? []
      expect(logprobs.length).toBeGreaterThan(batchSize)
      expect(logprobs.map(({ token }) => token).join('')).toBe(text)
      expect(logprobs.slice(1).every(({ logprob }) => logprob !== null && logprob < 0)).toBe(true)
    })
  })
})
