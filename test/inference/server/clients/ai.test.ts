import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, isStepCount, jsonSchema, Output, streamText, tool } from 'ai'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, schema, usesTool, writesJson } from './scenarios.ts'

const providers = {
  '@ai-sdk/openai-compatible': ({ url }: Served, name = 'tiny', apiKey = key) =>
    createOpenAICompatible({
      baseURL: `${url}/v1`,
      name: 'tutti',
      apiKey,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })(name),
  '@ai-sdk/openai': ({ url }: Served, name = 'tiny', apiKey = key) =>
    createOpenAI({ baseURL: `${url}/v1`, apiKey }).chat(name),
  '@ai-sdk/openai and its default model': ({ url }: Served, name = 'tiny', apiKey = key) =>
    createOpenAI({ baseURL: `${url}/v1`, apiKey })(name),
}

const tools = {
  weather: tool({
    description: 'tells the weather',
    inputSchema: jsonSchema<{ city: string }>(schema),
    execute: async ({ city }) => `sunny in ${city}`,
  }),
}

describe.each(Object.entries(providers))('ai with %s', (_, modelOf) => {
  it('the ai client generates and streams text', async () => {
    await using served = await serve({ apiKey: key })
    const model = modelOf(served)
    const { text, usage, finishReason } = await generateText({ model, prompt: 'two words' })
    expect([text, usage.totalTokens, finishReason]).toEqual(['two words', 5, 'stop'])
    const streamed = streamText({ model, prompt: 'more than two words' })
    const parts: string[] = []
    for await (const part of streamed.textStream) parts.push(part)
    expect(parts.join('')).toBe('more than two words')
    expect(parts.length).toBeGreaterThan(1)
    expect((await streamed.usage).totalTokens).toBe(5)
  })

  it('the ai client runs a tool loop, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const options = {
      model: modelOf(served),
      tools,
      prompt: 'weather?',
      stopWhen: isStepCount(3),
    }
    const whole = await generateText(options)
    expect(whole.steps[0]?.toolResults[0]?.output).toBe('sunny in Paris')
    expect([whole.steps.length, whole.text]).toEqual([2, 'It is sunny in Paris.'])
    const streamed = streamText(options)
    expect(await streamed.text).toBe('It is sunny in Paris.')
    expect((await streamed.steps)[0]?.toolCalls[0]?.input).toEqual({ city: 'Paris' })
  })

  it('the ai client reads structured output, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const options = {
      model: modelOf(served),
      prompt: 'where?',
      output: Output.object({ schema: jsonSchema<{ city: string }>(schema) }),
    }
    expect((await generateText(options)).output).toEqual({ city: 'Paris' })
    expect(await streamText(options).output).toEqual({ city: 'Paris' })
    expect(served.generator.requests.map(({ sampling }) => sampling.format)).toMatchObject([
      { kind: 'json_schema', schema },
      { kind: 'json_schema', schema },
    ])
  })

  it('the ai client retries by itself when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { text } = await generateText({ model: modelOf(served), prompt: 'again' })
    expect([calls(), text]).toEqual([2, 'second time'])
  })

  it('the ai client gets errors with their status, whole and streamed', async () => {
    const generator = new FakeGenerator(() =>
      Promise.reject(inferenceError('context_length_exceeded', 'It is too long')),
    )
    await using served = await serve({ apiKey: key, generator })
    for (const [model, statusCode, message] of [
      [modelOf(served, 'tiny', 'wrong'), 401, 'The API key is wrong'],
      [modelOf(served, 'other'), 404, "The model 'other' does not exist here"],
      [modelOf(served), 400, 'It is too long'],
    ] as const) {
      const refused = { statusCode, isRetryable: false, message: expect.stringContaining(message) }
      const options = { model, prompt: 'hi', maxRetries: 0 }
      await expect(generateText(options)).rejects.toMatchObject(refused)
      const errors: unknown[] = []
      const onError = ({ error }: { error: unknown }): void => void errors.push(error)
      const { textStream } = streamText({ ...options, onError })
      for await (const part of textStream) expect(part).toBe('none')
      expect(errors).toMatchObject([refused])
    }
  })

  it('the ai client gets an error in the middle of a stream', async () => {
    const generator = new FakeGenerator(async (__, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const errors: unknown[] = []
    const texts: string[] = []
    const onError = ({ error }: { error: unknown }): void => void errors.push(error)
    const options = { model: modelOf(served), prompt: 'hi', maxRetries: 0, onError }
    for await (const text of streamText(options).textStream) texts.push(text)
    expect(texts).toEqual(['first'])
    expect(errors).toHaveLength(1)
    expect(JSON.stringify(errors[0])).toContain('lost')
  })

  it('aborting a stream cancels its request in the generator', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const leaving = new AbortController()
    const { textStream } = streamText({
      model: modelOf(served),
      prompt: 'on and on',
      abortSignal: leaving.signal,
    })
    for await (const text of textStream) if (text === 'first') leaving.abort()
    await canceled
  })
})
