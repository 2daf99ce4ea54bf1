import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { InferenceBackend } from '../../src/inference/inference-backend.ts'
import { storyModel } from './engines/llama/open-engine.ts'

/** One server with the model that writes stories, for all that concerns sampling over HTTP. */
let backend: InferenceBackend
let client: OpenAI
beforeAll(async () => {
  backend = await InferenceBackend.fromConfig(
    {
      required: { model_name: storyModel() },
      llm: { repetition_penalty: 1, max_model_len: 256 },
      engine: { kind: 'llama', threads: 1, gpu: false, sequences: 4 },
    },
    { port: 0 },
  )
  client = new OpenAI({ baseURL: `${backend.endpoint}/v1`, apiKey: 'unused', maxRetries: 0 })
})
afterAll(() => backend.close())

const once = { prompt: 'Once upon a time', max_tokens: 4, temperature: 0 }
const complete = async (fields: object): Promise<string> => {
  const { choices } = await client.completions.create({ model: backend.model, ...once, ...fields })
  return choices[0]?.text ?? ''
}

describe('sampling over HTTP', () => {
  it('logit_bias bans a token in completions and chats', async () => {
    const usual = await complete({})
    expect(usual).toBe(', there was a')
    const response = await fetch(`${backend.endpoint}/tokenize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ content: 'a,' }),
    })
    const { tokens } = (await response.json()) as { tokens: number[] }
    const banned = { logit_bias: { [tokens.at(-1) ?? 0]: -100 } }
    expect(await complete(banned)).not.toContain(',')
    const chat = await client.chat.completions.create({
      model: backend.model,
      messages: [{ role: 'user', content: once.prompt }],
      max_tokens: 40,
      temperature: 0,
      ...banned,
    })
    expect(chat.choices[0]?.message.content).not.toContain(',')
  })

  it.each([false, true])(
    'Ollama’s durations are those of the answer, stream %j',
    async (stream) => {
      const response = await fetch(`${backend.endpoint}/api/generate`, {
        method: 'POST',
        body: JSON.stringify({ model: backend.model, prompt: 'Once', options: {}, stream }),
      })
      const last = (await response.text()).trim().split('\n').at(-1) ?? ''
      const {
        total_duration: total,
        prompt_eval_duration: prompt,
        eval_duration: answer,
      } = JSON.parse(last)
      expect([prompt > 0, answer > 0]).toEqual([true, true])
      expect(Math.abs(prompt + answer - total)).toBeLessThanOrEqual(2)
    },
  )

  it('structured_outputs of vLLM is a grammar', async () => {
    const choice = ['a blue whale', 'seven oaks']
    expect(choice).toContain(await complete({ structured_outputs: { choice }, max_tokens: 20 }))
  })

  it('logit_bias with a token that the model does not have is a 400', async () => {
    await expect(complete({ logit_bias: { 32000: 1 } })).rejects.toMatchObject({
      status: 400,
      param: 'logit_bias',
      message: expect.stringContaining('The model has 32000 tokens') as string,
    })
  })

  it('penalties, top_k, min_p and seed change the text as they do in the engine', async () => {
    const prompt = 'dog dog dog dog dog dog'
    const again = { prompt, max_tokens: 12 }
    const usual = await complete(again)
    expect(usual).toContain('dog')
    for (const field of ['frequency_penalty', 'presence_penalty']) {
      expect(await complete({ ...again, [field]: 2 })).not.toBe(usual)
    }
    expect(await complete({ ...again, repetition_penalty: 5 })).not.toContain('dog')
    const hot = { ...again, temperature: 2, top_p: 1, top_k: 0, seed: 5 }
    const random = await complete(hot)
    expect(random).not.toBe(usual)
    expect(await complete(hot)).toBe(random)
    expect(await complete({ ...hot, seed: 6 })).not.toBe(random)
    expect(await complete({ ...hot, top_k: 1 })).toBe(usual)
    expect(await complete({ ...hot, min_p: 1 })).toBe(usual)
  })
})

describe('log probabilities over HTTP', () => {
  interface Scored {
    readonly tokens: readonly string[]
    readonly token_logprobs: readonly (number | null)[]
    readonly top_logprobs: readonly (Readonly<Record<string, number>> | null)[]
    readonly text_offset: readonly number[]
  }

  /** How lm-eval reads an answer with `echo`, `logprobs: 1` and `max_tokens: 1`. */
  function loglikelihood(scored: Scored, contextLength: number): [number, boolean] {
    const logprobs = scored.token_logprobs.slice(contextLength, -1).map(Number)
    const top = scored.top_logprobs.slice(contextLength, -1)
    const isGreedy = logprobs.every((one, at) => one === Math.max(...Object.values(top[at] ?? {})))
    return [logprobs.reduce((sum, one) => sum + one, 0), isGreedy]
  }

  const scoring = { max_tokens: 1, temperature: 0, logprobs: 1, echo: true, seed: 1234 }

  async function score(
    prompt: string | number[],
    fields: object = {},
  ): Promise<{ text: string; logprobs: Scored; finish_reason: string }> {
    const { choices } = await client.completions.create({
      model: backend.model,
      prompt,
      ...scoring,
      ...fields,
    })
    const [choice] = choices as unknown as Awaited<ReturnType<typeof score>>[]
    if (choice === undefined) throw new Error('no choice')
    return choice
  }

  it("lm-eval's loglikelihood: the sum of a continuation, and whether it is greedy", async () => {
    const written = await client.chat.completions.create({
      model: backend.model,
      messages: [{ role: 'user', content: once.prompt }],
      max_tokens: 8,
      temperature: 0,
      logprobs: true,
      top_logprobs: 1,
    })
    const said = written.choices[0]?.logprobs?.content ?? []
    const expected = said.reduce((sum, { logprob }) => sum + logprob, 0)
    const text = `${once.prompt}${written.choices[0]?.message.content}`
    const { logprobs, text: echoed } = await score(text)
    const contextLength = logprobs.tokens.length - 1 - said.length
    const [sum, isGreedy] = loglikelihood(logprobs, contextLength)
    expect(sum).toBeCloseTo(expected, 1)
    expect(isGreedy).toBe(true)
    expect(logprobs.token_logprobs[0]).toBeNull()
    expect(logprobs.top_logprobs[0]).toBeNull()
    expect(logprobs.tokens.join('')).toBe(echoed)
    expect(
      logprobs.tokens.map((token, at) => echoed.startsWith(token, logprobs.text_offset[at])),
    ).toEqual(logprobs.tokens.map(() => true))

    const unlikely = await score(`${once.prompt} zebra zebra purple`)
    const [less, isUsual] = loglikelihood(unlikely.logprobs, contextLength)
    expect(less).toBeLessThan(sum - 5)
    expect(isUsual).toBe(false)
  })

  it('a prompt of token ids has one log probability for each id', async () => {
    const response = await fetch(`${backend.endpoint}/tokenize`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify({ content: 'Once upon a time, there was' }),
    })
    const { tokens } = (await response.json()) as { tokens: number[] }
    const { logprobs, text } = await score([1, ...tokens])
    expect(logprobs.tokens).toHaveLength(tokens.length + 2)
    expect(text).toMatch(/Once upon a time, there was a$/)
    const [sum, isGreedy] = loglikelihood(logprobs, tokens.length - 1)
    expect(isGreedy).toBe(true)
    const same = await score('Once upon a time, there was')
    expect(loglikelihood(same.logprobs, tokens.length - 2)[0]).toBeCloseTo(sum, 2)
    await expect(score([1, 32000])).rejects.toMatchObject({ status: 400, param: 'prompt' })
  })

  it('a stream has the prompt and its log probabilities first', async () => {
    const whole = await score(once.prompt)
    const stream = await client.completions.create({
      model: backend.model,
      prompt: once.prompt,
      ...scoring,
      stream: true,
    })
    let text = ''
    const logprobs: (number | null)[] = []
    const offsets: number[] = []
    for await (const { choices } of stream) {
      const [choice] = choices as unknown as { text: string; logprobs: Scored | null }[]
      text += choice?.text ?? ''
      logprobs.push(...(choice?.logprobs?.token_logprobs ?? []))
      offsets.push(...(choice?.logprobs?.text_offset ?? []))
    }
    expect(text).toBe(whole.text)
    expect(logprobs).toHaveLength(whole.logprobs.token_logprobs.length)
    expect(logprobs[0]).toBeNull()
    expect(offsets).toEqual(whole.logprobs.text_offset)
  })

  it('offsets count characters of the text, also after special tokens and bytes', async () => {
    // A prompt of nothing but the begin mark: the first word of the text has no blank.
    const { logprobs, text } = await score([1], { max_tokens: 3 })
    expect(text).toBe('Once upon a')
    expect(logprobs.text_offset).toEqual([0, 0, 4, 9])
    const emoji = await score('a😀b', { max_tokens: 0 })
    expect(emoji.logprobs.tokens[1]).toBe(String.raw`bytes:\xf0`)
    expect(emoji.logprobs.text_offset).toEqual([0, 1, 1, 1, 1, 2])
  })

  it('max_tokens: 0 scores the prompt and generates nothing', async () => {
    const whole = await score(once.prompt)
    const alone = await score(once.prompt, { max_tokens: 0 })
    expect(alone).toMatchObject({ text: once.prompt, finish_reason: 'length' })
    for (const key of ['tokens', 'text_offset', 'top_logprobs'] as const) {
      expect(alone.logprobs[key]).toHaveLength(whole.logprobs[key].length - 1)
    }
    expect(alone.logprobs.token_logprobs[0]).toBeNull()
    const {
      token_logprobs: [, ...expected],
    } = whole.logprobs
    for (const [at, one] of alone.logprobs.token_logprobs.slice(1).entries()) {
      expect(one).toBeCloseTo(Number(expected[at]), 2)
    }
    // Nothing is before the first id, so that nothing has to be computed.
    expect((await score([1], { max_tokens: 0 })).logprobs.token_logprobs).toEqual([null])
  })

  it('max_tokens: 0 without log probabilities repeats the prompt, also in a stream', async () => {
    const none = { model: backend.model, max_tokens: 0, echo: true }
    for (const prompt of [once.prompt, [1, 9038, 2501, 263, 931]]) {
      const { choices, usage } = await client.completions.create({ ...none, prompt })
      expect(choices[0]).toMatchObject({ finish_reason: 'length', logprobs: null })
      expect(choices[0]?.text.trim()).toBe('Once upon a time')
      expect(usage).toMatchObject({ prompt_tokens: 5, completion_tokens: 0 })
      let text = ''
      const stream = await client.completions.create({ ...none, prompt, stream: true })
      for await (const chunk of stream) text += chunk.choices[0]?.text ?? ''
      expect(text).toBe(choices[0]?.text)
    }
  })

  it('echo without log probabilities repeats the prompt, also one of token ids', async () => {
    const ids = [1, 9038, 2501, 263, 931]
    for (const prompt of [once.prompt, ids]) {
      const { choices } = await client.completions.create({
        model: backend.model,
        prompt,
        max_tokens: 1,
        temperature: 0,
        echo: true,
      })
      expect(choices[0]?.text.trim()).toBe('Once upon a time,')
      expect(choices[0]?.logprobs).toBeNull()
    }
  })
})

describe('prefix caching over HTTP', () => {
  it('cached_tokens of the usage tells what was not computed again', async () => {
    const prompt = 'Lily and Tom are friends. They like to play with cars and dolls'
    const ask = { model: backend.model, prompt, max_tokens: 4, temperature: 0 }
    const first = await client.completions.create(ask)
    // The token before every prompt.
    expect(first.usage?.prompt_tokens_details).toEqual({ cached_tokens: 1 })
    const second = await client.completions.create(ask)
    const count = (second.usage?.prompt_tokens ?? 0) - 1
    expect(second.usage?.prompt_tokens_details).toEqual({ cached_tokens: count })
    expect(second.choices[0]?.text).toBe(first.choices[0]?.text)
  })

  it('/metrics counts the tokens of prompts, and those of them from the cache', async () => {
    const counts = async (): Promise<number[]> => {
      const text = await (await fetch(`${backend.endpoint}/metrics`)).text()
      const count = (type: string) =>
        Number(new RegExp(`^tutti_tokens_total\\{.*type="${type}"\\} (\\d+)$`, 'm').exec(text)?.[1])
      return ['input', 'cached'].map(count)
    }
    const prompt = 'A sentence that no other test of this file has as its prompt'
    const [input = 0, cached = 0] = await counts()
    await complete({ prompt })
    const [single = 0] = await counts()
    await complete({ prompt })
    const [twice = 0, reused = 0] = await counts()
    expect(twice - single).toBe(single - input)
    expect(reused - cached).toBeGreaterThan((single - input) / 2)
  })
})
