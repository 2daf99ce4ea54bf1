import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import { generateText, jsonSchema, Output, streamText, tool } from 'ai'
import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator, type Script, silent } from './fake-generator.ts'
import { serve, type Served } from './served.ts'

const key = 'sk-clients-test'
const messages = [{ role: 'user' as const, content: 'say it in two words' }]
const schema = {
  type: 'object' as const,
  properties: { city: { type: 'string' as const } },
  required: ['city'],
  additionalProperties: false,
}
const weather = { id: 'call_1', name: 'weather', arguments: '{"city":"Paris"}' }

/** Calls the tool once, then returns its outcome as text. */
const usesTool: Script = async ({ input }, tell) => {
  if (input.kind === 'text') return { text: '' }
  const last = input.messages.at(-1)
  if (last?.role === 'tool') {
    await tell.delta?.({ text: `It is ${last.content}.` })
    return { text: `It is ${last.content}.` }
  }
  await tell.delta?.({ text: '', toolCalls: [weather] })
  return { toolCalls: [weather], finishReason: 'tool_calls' }
}

const openai = (served: Served, options: { maxRetries?: number; apiKey?: string } = {}): OpenAI =>
  new OpenAI({ baseURL: `${served.url}/v1`, apiKey: key, ...options })

describe('the openai client', () => {
  it('chats, and streams with usage', async () => {
    await using served = await serve({ apiKey: key })
    const client = openai(served)
    const whole = await client.chat.completions.create({ model: 'tiny', messages })
    expect(whole.choices[0]?.message.content).toBe('say it in two words')
    expect(whole.usage?.total_tokens).toBe(5)
    const stream = await client.chat.completions.create({
      model: 'tiny',
      messages,
      stream: true,
      stream_options: { include_usage: true },
    })
    let text = ''
    let total: number | undefined
    const reasons: unknown[] = []
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? ''
      if (chunk.choices[0]) reasons.push(chunk.choices[0].finish_reason)
      total = chunk.usage?.total_tokens
    }
    expect({ text, total, last: reasons.at(-1) }).toEqual({
      text: 'say it in two words',
      total: 5,
      last: 'stop',
    })
  })

  it('parses JSON that matches a schema, and runs a tool loop', async () => {
    await using served = await serve({
      apiKey: key,
      generator: new FakeGenerator(() => ({ text: '{"city":"Paris"}' })),
    })
    const parsed = await openai(served).chat.completions.parse({
      model: 'tiny',
      messages,
      response_format: { type: 'json_schema', json_schema: { name: 'place', schema } },
    })
    expect(parsed.choices[0]?.message.content).toBe('{"city":"Paris"}')
    expect(served.generator.requests[0]?.sampling.format).toEqual({ kind: 'json_schema', schema })
    served.generator.script = usesTool
    const runner = openai(served).chat.completions.runTools({
      model: 'tiny',
      messages,
      stream: true,
      tools: [
        {
          type: 'function',
          function: {
            name: 'weather',
            description: 'tells the weather',
            parameters: schema,
            parse: JSON.parse,
            function: (place: { city: string }) => `sunny in ${place.city}`,
          },
        },
      ],
    })
    expect(await runner.finalContent()).toBe('It is sunny in Paris.')
  })

  it('receives errors with status, code, param and type', async () => {
    await using served = await serve({ apiKey: key })
    const failure = (options: object, apiKey = key): Promise<unknown> =>
      openai(served, { maxRetries: 0, apiKey })
        .chat.completions.create({ model: 'tiny', messages, ...options })
        .then(
          () => 'answered',
          (error: unknown) => error,
        )
    const bad = await failure({ temperature: 9 })
    expect(bad).toBeInstanceOf(OpenAI.BadRequestError)
    expect(bad).toMatchObject({
      status: 400,
      code: 'decimal_above_max_value',
      param: 'temperature',
      type: 'invalid_request_error',
      requestID: expect.stringMatching(/^req_/),
    })
    expect(await failure({ model: 'other' })).toBeInstanceOf(OpenAI.NotFoundError)
    expect(await failure({}, 'wrong')).toBeInstanceOf(OpenAI.AuthenticationError)
  })

  it('retries by itself when the queue is full', async () => {
    let attempts = 0
    const generator = new FakeGenerator(() => {
      attempts++
      if (attempts < 3) throw inferenceError('queue_full', 'The queue has no room.')
      return { text: 'third time' }
    })
    await using served = await serve({ apiKey: key, generator })
    const { choices } = await openai(served).chat.completions.create({ model: 'tiny', messages })
    expect([attempts, choices[0]?.message.content]).toEqual([3, 'third time'])
  })

  it('aborting a stream cancels its request in the generator', async () => {
    const gone = Promise.withResolvers<void>()
    const generator = new FakeGenerator(async (request, tell) => {
      request.signal.addEventListener('abort', () => gone.resolve())
      await tell.delta?.({ text: 'first' })
      return silent(request, tell)
    })
    await using served = await serve({ apiKey: key, generator })
    const stream = await openai(served).chat.completions.create({
      model: 'tiny',
      messages,
      stream: true,
    })
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content === 'first') stream.controller.abort()
    }
    await gone.promise
  })

  it('receives an error in the middle of a stream', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const stream = await openai(served).chat.completions.create({
      model: 'tiny',
      messages,
      stream: true,
    })
    const read = async (): Promise<void> => {
      for await (const _ of stream);
    }
    await expect(read()).rejects.toMatchObject({ code: 'engine_lost' })
  })

  it('completes text and lists models', async () => {
    await using served = await serve({ apiKey: key })
    const client = openai(served)
    const { choices } = await client.completions.create({ model: 'tiny', prompt: ['a', 'b c'] })
    expect(choices.map(({ text }) => text)).toEqual(['a', 'b c'])
    const stream = await client.completions.create({ model: 'tiny', prompt: 'a b', stream: true })
    let text = ''
    for await (const chunk of stream) text += chunk.choices[0]?.text ?? ''
    expect(text).toBe('a b')
    const models: string[] = []
    for await (const model of client.models.list()) models.push(model.id)
    expect(models).toEqual(['tiny', 'tiny-alias'])
    expect((await client.models.retrieve('tiny')).owned_by).toBe('tutti')
  })
})

describe('the ai client', () => {
  const modelOf = (served: Served): ReturnType<ReturnType<typeof createOpenAICompatible>> =>
    createOpenAICompatible({
      baseURL: `${served.url}/v1`,
      name: 'tutti',
      apiKey: key,
      includeUsage: true,
      supportsStructuredOutputs: true,
    })('tiny')
  const tools = {
    weather: tool({
      description: 'tells the weather',
      inputSchema: jsonSchema<{ city: string }>(schema),
      execute: async ({ city }) => `sunny in ${city}`,
    }),
  }

  it('generates and streams text', async () => {
    await using served = await serve({ apiKey: key })
    const model = modelOf(served)
    const { text, usage, finishReason } = await generateText({ model, prompt: 'two words' })
    expect([text, usage.totalTokens, finishReason]).toEqual(['two words', 5, 'stop'])
    const streamed = streamText({ model, prompt: 'more than two words' })
    const parts: string[] = []
    for await (const part of streamed.textStream) parts.push(part)
    expect(parts.join('')).toBe('more than two words')
    expect((await streamed.usage).totalTokens).toBe(5)
  })

  it('calls tools, and reads structured output', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const model = modelOf(served)
    const options = { model, tools, prompt: 'weather?' }
    const called = await generateText(options)
    expect(called.toolCalls[0]?.input).toEqual({ city: 'Paris' })
    expect(called.toolResults[0]?.output).toBe('sunny in Paris')
    const streamed = streamText(options)
    expect((await streamed.toolResults)[0]?.output).toBe('sunny in Paris')
    served.generator.script = () => ({ text: '{"city":"Paris"}' })
    const { output } = await generateText({
      model,
      prompt: 'where?',
      output: Output.object({ schema: jsonSchema<{ city: string }>(schema) }),
    })
    expect(output).toEqual({ city: 'Paris' })
    expect(served.generator.requests.at(-1)?.sampling.format).toMatchObject({ kind: 'json_schema' })
  })
})
