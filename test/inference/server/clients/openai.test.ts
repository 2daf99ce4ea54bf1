import OpenAI from 'openai'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, schema, usesTool, writesJson } from './scenarios.ts'

const messages = [{ role: 'user' as const, content: 'say it in two words' }]

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

  it('the openai client parses JSON that matches a schema, and runs a tool loop', async () => {
    await using served = await serve({
      apiKey: key,
      generator: new FakeGenerator(writesJson),
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

  it('the openai client receives errors with status, code, param and type', async () => {
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

  it('the openai client retries by itself when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { choices } = await openai(served).chat.completions.create({ model: 'tiny', messages })
    expect([calls(), choices[0]?.message.content]).toEqual([2, 'second time'])
  })

  it('aborting a stream cancels its request in the generator', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const stream = await openai(served).chat.completions.create({
      model: 'tiny',
      messages,
      stream: true,
    })
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content === 'first') stream.controller.abort()
    }
    await canceled
  })

  it('the openai client receives an error in the middle of a stream', async () => {
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

  it('the openai client completes text and lists models', async () => {
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
