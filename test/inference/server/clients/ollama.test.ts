import { type Message, Ollama } from 'ollama'
import { describe, expect, it } from 'vitest'
import { inferenceError } from '../../../../src/inference/generation/inference-errors.ts'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, schema, usesTool, writesJson } from './scenarios.ts'

const messages = [{ role: 'user', content: 'say it in two words' }]
const request = { model: 'tiny', messages }

const ollama = ({ url }: Served, apiKey = key): Ollama =>
  new Ollama({ host: url, headers: { authorization: `Bearer ${apiKey}` } })

const tools = [
  { type: 'function', function: { name: 'weather', description: 'tells it', parameters: schema } },
]

describe('the ollama client', () => {
  it('the ollama client chats, and streams', async () => {
    await using served = await serve({ apiKey: key })
    const whole = await ollama(served).chat(request)
    expect([whole.message.content, whole.done_reason]).toEqual(['say it in two words', 'stop'])
    expect([whole.prompt_eval_count, whole.eval_count]).toEqual([3, 2])
    const texts: string[] = []
    const done: boolean[] = []
    for await (const part of await ollama(served).chat({ ...request, stream: true })) {
      texts.push(part.message.content)
      done.push(part.done)
    }
    expect(texts.join('')).toBe('say it in two words')
    expect(texts.length).toBeGreaterThan(2)
    expect(done.indexOf(true)).toBe(done.length - 1)
  })

  it('the ollama client generates with a system prompt, and without a chat template', async () => {
    await using served = await serve({ apiKey: key })
    const client = ollama(served)
    const options = { num_predict: 7, num_ctx: 2048 }
    const { response } = await client.generate({
      model: 'tiny:latest',
      prompt: 'two words',
      system: 'Be brief.',
      options,
    })
    expect(response).toBe('two words')
    let text = ''
    const raw = { model: 'tiny', prompt: 'more words', raw: true, stream: true } as const
    for await (const part of await client.generate(raw)) text += part.response
    expect(text).toBe('more words')
    const [first, second] = served.generator.requests
    expect([first?.input, first?.sampling.maxTokens]).toMatchObject([
      { messages: [{ content: 'Be brief.' }, { content: 'two words' }] },
      7,
    ])
    expect(second?.input).toEqual({ kind: 'text', text: 'more words' })
  })

  it('the ollama client runs a tool loop, whole and streamed, without ids of calls', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const { message } = await ollama(served).chat({ ...request, tools })
    const calls = (message.tool_calls ?? []).map(({ function: { name, arguments: given } }) => {
      return { function: { name, arguments: given } }
    })
    expect(calls).toEqual([{ function: { name: 'weather', arguments: { city: 'Paris' } } }])
    const streamed = []
    for await (const part of await ollama(served).chat({ ...request, tools, stream: true })) {
      streamed.push(...(part.message.tool_calls ?? []))
    }
    expect(streamed).toEqual(message.tool_calls)
    const conversation: Message[] = [
      ...messages,
      { role: 'assistant', content: '', tool_calls: [...calls, ...calls] },
      { role: 'tool', content: 'rainy in Rome', tool_name: 'weather' },
      { role: 'tool', content: 'sunny in Paris', tool_name: 'weather' },
    ]
    let text = ''
    const stream = await ollama(served).chat({ ...request, messages: conversation, stream: true })
    for await (const part of stream) text += part.message.content
    expect(text).toBe('It is sunny in Paris.')
    const input = served.generator.requests.at(-1)?.input
    expect(input).toMatchObject({
      messages: [
        {},
        { toolCalls: [{ id: 'call_0' }, { id: 'call_1' }] },
        { role: 'tool', toolCallId: 'call_0' },
        { role: 'tool', toolCallId: 'call_1' },
      ],
    })
  })

  it('the ollama client asks for JSON that fits a schema', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const { message } = await ollama(served).chat({ ...request, format: schema })
    expect(message.content).toBe('{"city":"Paris"}')
    expect(served.generator.requests[0]?.sampling.format).toEqual({ kind: 'json_schema', schema })
  })

  it('the ollama client lists, shows and loads the served models', async () => {
    await using served = await serve({ apiKey: key })
    const client = ollama(served)
    const { models } = await client.list()
    expect(models.map(({ name }) => name)).toEqual(['tiny', 'tiny-alias'])
    expect((await client.ps()).models[0]).toMatchObject({ name: 'tiny', context_length: 8192 })
    expect(await client.show({ model: 'tiny:latest' })).toMatchObject({
      model_info: { 'tutti.context_length': 8192 },
    })
    expect((await client.version()).version).toMatch(/^\d+\.\d+\.\d+$/)
    expect(await client.chat({ model: 'tiny', messages: [] })).toMatchObject({
      done: true,
      done_reason: 'load',
    })
    const unload = { model: 'tiny', prompt: '', keep_alive: 0 }
    expect(await client.generate(unload)).toMatchObject({ done_reason: 'unload' })
    expect(served.generator.requests).toEqual([])
  })

  it('the ollama client reads messages of errors, and in the middle of a stream', async () => {
    const generator = new FakeGenerator(async (_, tell) => {
      await tell.delta?.({ text: 'first' })
      throw inferenceError('engine_lost', 'gone')
    })
    await using served = await serve({ apiKey: key, generator })
    const failure = (options: object, apiKey = key): Promise<unknown> =>
      ollama(served, apiKey)
        .chat({ ...request, ...options })
        .then(
          () => 'answered',
          (error: unknown) => error,
        )
    expect(await failure({ options: { num_predict: 0 } })).toMatchObject({
      error: expect.stringContaining("'options.num_predict'"),
      status_code: 400,
    })
    expect(await failure({ model: 'other' })).toMatchObject({ status_code: 404 })
    expect(await failure({}, 'wrong')).toMatchObject({ status_code: 401 })
    const texts: string[] = []
    const read = async (): Promise<void> => {
      for await (const part of await ollama(served).chat({ ...request, stream: true })) {
        texts.push(part.message.content)
      }
    }
    await expect(read()).rejects.toThrow('lost')
    expect(texts).toEqual(['first'])
    const embedded = ollama(served).embed({ model: 'tiny', input: 'a' })
    await expect(embedded).rejects.toMatchObject({ status_code: 404, error: expect.any(String) })
  })

  it('aborting a stream of the ollama client cancels its request', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const stream = await ollama(served).chat({ ...request, stream: true })
    const read = async (): Promise<void> => {
      for await (const _ of stream) stream.abort()
    }
    await expect(read()).rejects.toThrow('abort')
    await canceled
  })
})

it.each([
  [{}, ['completion', 'tools', 'thinking']],
  [{ hasChatTemplate: false }, ['completion']],
  [{ chatTemplate: '{{ messages[0].content }}' }, ['completion']],
  [{ chatTemplate: '{% if tools %}{{ tools }}{% endif %}' }, ['completion', 'tools']],
  [{ chatTemplate: '{% if enable_thinking %}a{% endif %}' }, ['completion', 'thinking']],
  [{ purpose: 'embedding' }, ['embedding']],
] as const)('Ollama: a model with %j shows what it can do', async (facts, expected) => {
  await using served = await serve()
  served.server.modelLoaded({ contextLength: 256, ...facts })
  const { capabilities } = await ollama(served).show({ model: 'tiny:latest' })
  expect(capabilities).toEqual(expected)
})

it('Ollama: bodies need no content type, but a known origin', async () => {
  await using served = await serve()
  const body = JSON.stringify({ model: 'tiny', stream: false, prompt: 'hello' })
  const send = (path: string, headers: Record<string, string> = {}): Promise<number> =>
    fetch(served.url + path, {
      method: 'POST',
      body,
      headers: { 'content-type': 'application/x-www-form-urlencoded', ...headers },
    }).then(({ status }) => status)
  expect(await send('/api/generate')).toBe(200)
  expect(await send('/api/show')).toBe(200)
  expect(await send('/api/generate', { origin: 'https://evil.example' })).toBe(403)
  expect(await send('/v1/completions')).toBe(415)
})

it('Ollama: unknown samplers have no effect, and a limit is at most the context', async () => {
  await using served = await serve({ contextLength: 256 })
  const options = { typical_p: 0.7, mirostat: 1, repeat_last_n: 33, num_predict: 1000 }
  const { response } = await ollama(served).generate({ model: 'tiny', prompt: 'hello', options })
  expect(response).toBe('hello')
  expect(served.generator.requests[0]?.sampling).toMatchObject({ maxTokens: 256 })
})
