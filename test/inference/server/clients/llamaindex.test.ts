import { tool } from '@llamaindex/core/tools'
import type { ChatMessage, ToolCallLLMMessageOptions } from '@llamaindex/core/llms'
import { OpenAI } from '@llamaindex/openai'
import { describe, expect, it } from 'vitest'
import { z } from 'zod'
import { FakeGenerator } from '../fake-generator.ts'
import { serve, type Served } from '../served.ts'
import { key, neverEnds, refusesOnce, schema, usesTool, writesJson } from './scenarios.ts'

const chatOf = (served: Served, leaving?: AbortSignal): OpenAI =>
  new OpenAI({
    model: 'tiny',
    apiKey: key,
    baseURL: `${served.url}/v1`,
    additionalSessionOptions: {
      fetch: (url, init) => {
        const signals = [init?.signal ?? [], leaving ?? []].flat()
        return fetch(url, { ...init, signal: AbortSignal.any(signals) })
      },
    },
  })

const ask = (content: string): ChatMessage<ToolCallLLMMessageOptions>[] => [
  { role: 'user', content },
]

const weather = tool({
  name: 'weather',
  description: 'tells the weather',
  parameters: z.object({ city: z.string() }),
  execute: ({ city }) => `sunny in ${city}`,
})

describe('@llamaindex/openai', () => {
  it('@llamaindex/openai generates and streams text', async () => {
    await using served = await serve({ apiKey: key })
    const chat = chatOf(served)
    const { message } = await chat.chat({ messages: ask('two words') })
    expect(message.content).toBe('two words')
    const parts: string[] = []
    const messages = ask('more than two words')
    for await (const { delta } of await chat.chat({ messages, stream: true })) parts.push(delta)
    expect(parts.join('')).toBe('more than two words')
    expect(parts.length).toBeGreaterThan(1)
  })

  it('@llamaindex/openai runs a tool loop, whole and streamed', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(usesTool) })
    const chat = chatOf(served)
    const messages = ask('weather?')
    const first = await chat.exec({ messages, tools: [weather] })
    expect(first.toolCalls).toMatchObject([{ name: 'weather' }])
    messages.push(...first.newMessages)
    const second = await chat.exec({ messages, tools: [weather] })
    expect(second.newMessages).toMatchObject([{ content: 'It is sunny in Paris.' }])
    const streamed = await chat.exec({ messages: ask('weather?'), tools: [weather], stream: true })
    for await (const _ of streamed.stream);
    expect(streamed.newMessages().at(-1)?.content).toBe('sunny in Paris')
  })

  it('@llamaindex/openai reads structured output', async () => {
    await using served = await serve({ apiKey: key, generator: new FakeGenerator(writesJson) })
    const responseFormat = { type: 'json_schema', json_schema: { name: 'place', schema } }
    const { message } = await chatOf(served).chat({ messages: ask('where?'), responseFormat })
    expect(JSON.parse(String(message.content))).toEqual({ city: 'Paris' })
    expect(served.generator.requests[0]?.sampling.format).toEqual({ kind: 'json_schema', schema })
  })

  it('@llamaindex/openai retries by itself when the queue is full', async () => {
    const { generator, calls } = refusesOnce()
    await using served = await serve({ apiKey: key, generator })
    const { message } = await chatOf(served).chat({ messages: ask('again') })
    expect([calls(), message.content]).toEqual([2, 'second time'])
  })

  // A stream that is no longer read keeps its connection, and `chat` takes no signal: what can be
  // aborted is its fetch.
  it('aborting a stream cancels its request in the generator', async () => {
    const { generator, canceled } = neverEnds()
    await using served = await serve({ apiKey: key, generator })
    const leaving = new AbortController()
    const chat = chatOf(served, leaving.signal)
    const stream = await chat.chat({ messages: ask('on and on'), stream: true })
    for await (const { delta } of stream) if (delta === 'first') leaving.abort()
    await canceled
  })
})
