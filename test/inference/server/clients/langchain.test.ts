import { HumanMessage, ToolMessage, type BaseMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, usesTool, writesJson } from './scenarios.ts'

const place = z.object({ city: z.string() })

const chatOf = ({ url }: Served, options: { readonly maxRetries?: number } = {}): ChatOpenAI =>
  new ChatOpenAI({
    model: 'tiny',
    apiKey: key,
    configuration: { baseURL: `${url}/v1` },
    ...options,
  })

const weather = tool(async ({ city }) => `sunny in ${city}`, {
  name: 'weather',
  description: 'tells the weather',
  schema: place,
})

describe('@langchain/openai', () => {
  it('@langchain/openai generates and streams text', async () => {
    await using served = await serve({ apiKey: key })
    const chat = chatOf(served)
    expect(await chat.invoke('two words')).toMatchObject({
      text: 'two words',
      usage_metadata: { input_tokens: 3, output_tokens: 2, total_tokens: 5 },
    })
    const parts: string[] = []
    for await (const part of await chat.stream('more than two words')) parts.push(part.text)
    expect(parts.join('')).toBe('more than two words')
    expect(parts.length).toBeGreaterThan(1)
  })

  it('@langchain/openai runs a tool loop, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const chat = chatOf(served).bindTools([weather])
    const messages: BaseMessage[] = [new HumanMessage('weather?')]
    const first = await chat.invoke(messages)
    const [call] = first.tool_calls ?? []
    expect(call).toMatchObject({ name: 'weather', args: { city: 'Paris' } })
    const outcome = await weather.invoke({ city: 'Paris' })
    messages.push(first, new ToolMessage({ content: outcome, tool_call_id: call?.id ?? '' }))
    expect((await chat.invoke(messages)).text).toBe('It is sunny in Paris.')
    const pieces: string[] = []
    for await (const chunk of await chat.stream('weather?')) {
      pieces.push(...(chunk.tool_call_chunks ?? []).map(({ args = '' }) => args))
    }
    expect(JSON.parse(pieces.join(''))).toEqual({ city: 'Paris' })
  })

  it('@langchain/openai reads structured output by a schema and by a tool', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const chat = chatOf(served)
    const byMethod = (method: 'jsonSchema' | 'functionCalling') =>
      chat.withStructuredOutput(place, { name: 'weather', method }).invoke('where?')
    expect(await byMethod('jsonSchema')).toEqual({ city: 'Paris' })
    expect(served.generator.requests[0]?.sampling.format).toMatchObject({ kind: 'json_schema' })
    served.generator.script = usesTool
    expect(await byMethod('functionCalling')).toEqual({ city: 'Paris' })
  })

  it('@langchain/openai retries by itself when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { text } = await chatOf(served, { maxRetries: 2 }).invoke('again')
    expect([calls(), text]).toEqual([2, 'second time'])
  })

  it('aborting a stream cancels its request in the generator', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const leaving = new AbortController()
    const stream = await chatOf(served).stream('on and on', { signal: leaving.signal })
    const read = async (): Promise<void> => {
      for await (const { text } of stream) if (text === 'first') leaving.abort()
    }
    await expect(read()).rejects.toThrow(/abort/i)
    await canceled
  })
})
