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
