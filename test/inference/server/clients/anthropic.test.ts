import { createAnthropic } from '@ai-sdk/anthropic'
import Anthropic from '@anthropic-ai/sdk'
import { generateText, isStepCount, jsonSchema, streamText, tool } from 'ai'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, schema, usesTool, writesJson } from './scenarios.ts'

const messages = [{ role: 'user' as const, content: 'say it in two words' }]
const request = { model: 'tiny', max_tokens: 50, messages }

const anthropic = (served: Served, options: object = {}): Anthropic =>
  new Anthropic({ baseURL: served.url, apiKey: key, ...options })

describe('the Anthropic client', () => {
  it('the Anthropic client gets a message, streams one, and counts tokens', async () => {
    await using served = await serve({ apiKey: key })
    const client = anthropic(served)
    const whole = await client.messages.create({ ...request, system: 'Be brief.' })
    expect(whole.content).toEqual([{ type: 'text', text: 'say it in two words', citations: null }])
    expect([whole.stop_reason, whole.usage.input_tokens]).toEqual(['end_turn', 3])
    const stream = client.messages.stream(request)
    const texts: string[] = []
    stream.on('text', (text) => texts.push(text))
    const last = await stream.finalMessage()
    expect(texts.length).toBeGreaterThan(1)
    expect(last.content).toMatchObject([{ type: 'text', text: 'say it in two words' }])
    expect([last.stop_reason, last.usage.input_tokens, last.usage.output_tokens]).toEqual([
      'end_turn',
      3,
      2,
    ])
    const { input_tokens: counted } = await client.messages.countTokens({
      model: 'tiny',
      messages: [{ role: 'user', content: 'four' }],
    })
    expect(counted).toBe('<user>four'.length)
    served.generator.readPrompt = () => Promise.reject(inferenceError('unsupported', 'no template'))
    const estimate = await client.messages.countTokens({
      model: 'tiny',
      messages: [{ role: 'user', content: 'four' }],
    })
    expect(estimate.input_tokens).toBe(4)
  })

  it('the Anthropic client runs a tool loop, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    for (const stream of [false, true]) {
      const runner = anthropic(served).beta.messages.toolRunner({
        ...request,
        stream,
        tools: [
          {
            type: 'custom',
            name: 'weather',
            description: 'tells the weather',
            input_schema: schema,
            parse: (input) => input as { city: string },
            run: ({ city }: { city: string }) => `sunny in ${city}`,
          },
        ],
      })
      const last = await runner.runUntilDone()
      expect(last.content).toMatchObject([{ type: 'text', text: 'It is sunny in Paris.' }])
    }
  })

  it('the Anthropic client parses JSON that fits a schema', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const { parsed_output: parsed } = await anthropic(served).messages.parse({
      ...request,
      output_config: { format: { type: 'json_schema', schema } },
    })
    expect(parsed).toEqual({ city: 'Paris' })
    expect(served.generator.requests[0]?.sampling.format).toEqual({ kind: 'json_schema', schema })
  })

  it('the Anthropic client gets its own classes of errors', async () => {
    await using served = await serve({ apiKey: key })
    const failure = (options: object, client = {}): Promise<unknown> =>
      anthropic(served, { maxRetries: 0, ...client })
        .messages.create({ ...request, ...options })
        .then(
          () => 'answered',
          (error: unknown) => error,
        )
    const bad = await failure({ temperature: 9 })
    expect(bad).toBeInstanceOf(Anthropic.BadRequestError)
    expect(bad).toMatchObject({ status: 400, type: 'invalid_request_error' })
    expect(await failure({ model: 'other' })).toBeInstanceOf(Anthropic.NotFoundError)
    const wrongKey = await failure({}, { apiKey: 'wrong' })
    expect(wrongKey).toBeInstanceOf(Anthropic.AuthenticationError)
  })

  it('the Anthropic client lists and finds models in its own form', async () => {
    await using served = await serve({ apiKey: key, models: ['tiny', 'org/other'] })
    const client = anthropic(served, { maxRetries: 0 })
    const found = []
    for await (const model of client.models.list()) found.push(model)
    expect(found).toMatchObject([
      { type: 'model', id: 'tiny', display_name: 'tiny', max_input_tokens: 8192 },
      { type: 'model', id: 'org/other' },
    ])
    expect(new Date(found[0]?.created_at ?? '').getTime()).toBeGreaterThan(0)
    expect(await client.models.retrieve('org/other')).toEqual(found[1])
    const missing = await client.models.retrieve('other').catch((error: unknown) => error)
    expect(missing).toMatchObject({ status: 404, type: 'not_found_error' })
    const unknown = await client.messages.batches.list().catch((error: unknown) => error)
    expect(unknown).toMatchObject({ status: 404, type: 'not_found_error' })
  })

  it('the Anthropic client gets an error in the middle of a stream', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const stream = await anthropic(served).messages.create({ ...request, stream: true })
    const read = async (): Promise<void> => {
      for await (const _ of stream);
    }
    await expect(read()).rejects.toMatchObject({ type: 'overloaded_error' })
  })

  it('the Anthropic client retries by itself when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { content } = await anthropic(served).messages.create(request)
    expect([calls(), content]).toMatchObject([2, [{ text: 'second time' }]])
  })

  it('aborting a stream of the Anthropic client cancels its request', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const stream = await anthropic(served).messages.create({ ...request, stream: true })
    for await (const event of stream) {
      if (event.type === 'content_block_delta') stream.controller.abort()
    }
    await canceled
  })
})

describe('ai with @ai-sdk/anthropic', () => {
  const modelOf = ({ url }: Served) =>
    createAnthropic({ baseURL: `${url}/v1`, apiKey: key })('tiny')

  it('ai with @ai-sdk/anthropic generates and streams text', async () => {
    await using served = await serve({ apiKey: key })
    const limited = { model: modelOf(served), maxOutputTokens: 50 }
    const { text, usage, finishReason } = await generateText({ ...limited, prompt: 'two words' })
    expect([text, usage.totalTokens, finishReason]).toEqual(['two words', 5, 'stop'])
    const streamed = streamText({ ...limited, prompt: 'more than two words' })
    const parts: string[] = []
    for await (const part of streamed.textStream) parts.push(part)
    expect(parts.join('')).toBe('more than two words')
    expect(parts.length).toBeGreaterThan(1)
    expect((await streamed.usage).totalTokens).toBe(5)
  })

  it('ai with @ai-sdk/anthropic runs a tool loop, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const weather = tool({
      description: 'tells the weather',
      inputSchema: jsonSchema<{ city: string }>(schema),
      execute: async ({ city }) => `sunny in ${city}`,
    })
    const stopWhen = isStepCount(3)
    const model = modelOf(served)
    const limited = { model, maxOutputTokens: 50, stopWhen }
    const options = { ...limited, tools: { weather }, prompt: 'weather?' }
    const whole = await generateText(options)
    expect([whole.steps.length, whole.text]).toEqual([2, 'It is sunny in Paris.'])
    const streamed = streamText(options)
    expect(await streamed.text).toBe('It is sunny in Paris.')
    expect((await streamed.steps)[0]?.toolCalls[0]?.input).toEqual({ city: 'Paris' })
  })

  it('aborting a stream of @ai-sdk/anthropic cancels its request', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const leaving = new AbortController()
    const { textStream } = streamText({
      model: modelOf(served),
      maxOutputTokens: 50,
      prompt: 'on and on',
      abortSignal: leaving.signal,
    })
    for await (const text of textStream) if (text === 'first') leaving.abort()
    await canceled
  })

  it('ai with @ai-sdk/anthropic gets errors with their status, whole and streamed', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const wrongKey = createAnthropic({ baseURL: `${served.url}/v1`, apiKey: 'wrong' })('tiny')
    const unknown = createAnthropic({ baseURL: `${served.url}/v1`, apiKey: key })('other')
    const generators = ['queue_full', 'not_ready', 'context_length_exceeded'] as const
    const refusing = await Promise.all(
      generators.map((code) =>
        serve({
          apiKey: key,
          generator: new FakeGenerator(() => Promise.reject(inferenceError(code, `It is ${code}`))),
        }),
      ),
    )
    const [full, lost, long] = refusing.map(modelOf)
    for (const [model, statusCode, type, message, retryAfter] of [
      [wrongKey, 401, 'authentication_error', 'The API key is wrong'],
      [unknown, 404, 'not_found_error', "The model 'other' does not exist here"],
      [full, 429, 'rate_limit_error', 'It is queue_full', '1'],
      [lost, 503, 'overloaded_error', 'No engine is ready', '5'],
      [long, 400, 'invalid_request_error', 'It is context_length_exceeded'],
    ] as const) {
      if (model === undefined) throw new RangeError(`no model for ${statusCode}`)
      const headers = retryAfter === undefined ? {} : { 'retry-after': retryAfter }
      const refused = {
        statusCode,
        isRetryable: statusCode === 429 || statusCode >= 500,
        message: expect.stringContaining(message),
        data: { type: 'error', error: { type } },
        responseHeaders: expect.objectContaining(headers),
      }
      const options = { model, prompt: 'hi', maxRetries: 0, maxOutputTokens: 50 }
      await expect(generateText(options)).rejects.toMatchObject(refused)
      const errors: unknown[] = []
      const { textStream } = streamText({
        ...options,
        onError: ({ error }) => void errors.push(error),
      })
      for await (const _ of textStream);
      expect(errors).toMatchObject([refused])
    }
    for (const one of refusing) await one[Symbol.asyncDispose]()
    const errors: unknown[] = []
    const texts: string[] = []
    const { textStream } = streamText({
      model: modelOf(served),
      prompt: 'hi',
      maxRetries: 0,
      maxOutputTokens: 50,
      onError: ({ error }) => void errors.push(error),
    })
    for await (const text of textStream) texts.push(text)
    expect([texts, errors]).toMatchObject([['first'], [{ type: 'overloaded_error' }]])
  })
})
