import { describe, expect, it } from 'vitest'
import type {
  GenerationInput,
  PromptReport,
  Sampling,
  TokenLogprob,
} from '../../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../../generation.ts'
import { storyModel, useEngine } from '../open-engine.ts'

const once = { kind: 'text', text: 'Once upon a time' } as const
const greedy = { temperature: 0, topK: 0, topP: 1, maxTokens: 6, logprobs: 5 }

describe.each([
  ['the native context', true],
  ["the library's interface", false],
])('log probabilities with %s', (_, usesNativeContext) => {
  const engine = useEngine(storyModel, { usesNativeContext })

  async function write(
    sampling: Partial<Sampling>,
    input: GenerationInput = once,
  ): Promise<{ text: string; logprobs: readonly TokenLogprob[]; prompt?: PromptReport }> {
    const listener = new RecordingGeneration()
    await engine().generate([toRequest(input, { ...greedy, ...sampling })], listener)
    const logprobs = listener.deltas.flatMap((delta) => delta.logprobs ?? [])
    const prompt = listener.deltas.find((delta) => delta.prompt !== undefined)?.prompt
    const text = listener.textOf()
    return prompt === undefined ? { text, logprobs } : { text, logprobs, prompt }
  }

  it("are the model's own, whatever changes the choice", async () => {
    const [plain] = (await write({})).logprobs
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
    const sampling = { temperature: 1.5, seed: 4, topP: 0.5, topK: 3, maxTokens: 8 }
    const { logprobs } = await write({ ...sampling, logprobs: count })
    expect(logprobs).toHaveLength(8)
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
    const [likely] = (await write({ logprobs: 20 })).logprobs
    const wanted = likely?.top[15]
    const [id = 0] = (await engine().tokenize(`x${wanted?.token}`)).slice(-1)
    const [forced] = (await write({ logprobs: 2, logitBias: { [id]: 100 } })).logprobs
    expect(forced?.token).toBe(wanted?.token)
    expect(forced?.logprob).toBeCloseTo(wanted?.logprob ?? 0, 3)
    expect(forced?.top).toHaveLength(2)
  })

  it('a prompt is scored as the same tokens were when they were generated', async () => {
    const written = await write({ maxTokens: 12 })
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
    const { prompt } = await write({ echo: true }, { kind: 'text', text: '', tokens })
    expect(prompt?.logprobs).toHaveLength(tokens.length)
    expect(prompt?.logprobs[0]?.logprob).toBeNull()
    expect(prompt?.text.trim()).toBe('Once upon a time there was')
    const begun = [1, ...tokens]
    const same = await write({ maxTokens: 8 }, { kind: 'text', text: '', tokens: begun })
    const text = await write({ maxTokens: 8 }, { kind: 'text', text: 'Once upon a time there was' })
    expect(same.text).toBe(text.text)
  })

  it('a long prompt is scored in several passes', async () => {
    const text = 'The cat sat. '.repeat(30).trim()
    const { prompt } = await write(
      { echo: true, maxTokens: 1, logprobs: 0 },
      { kind: 'text', text },
    )
    const logprobs = prompt?.logprobs ?? []
    expect(logprobs.length).toBeGreaterThan(100)
    expect(logprobs.map(({ token }) => token).join('')).toBe(text)
    expect(logprobs.slice(1).every(({ logprob }) => logprob !== null && logprob < 0)).toBe(true)
  })
})
