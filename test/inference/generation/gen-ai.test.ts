import { expect, it } from 'vitest'
import { toPassThroughInput } from '../../../src/inference/generation/fields/message-text.ts'
import { toSpan } from '../../../src/inference/generation/gen-ai.ts'
import type { GenerationResult } from '../../../src/inference/generation/text-generator.ts'
import { toRequest } from '../engines/generation.ts'

it('toSpan captures a conversation that is passed on as its client wrote it', () => {
  const messages = [{ role: 'user', content: [{ type: 'text', text: 'hi' }], name: 'ann' }]
  const { attributes } = toSpan({
    request: toRequest(toPassThroughInput('chat', { messages })),
    model: 'tiny',
    taskId: null,
    arrivedMs: 0,
    arrivalTime: 0,
    firstTokenMs: null,
    endedMs: 1,
    outcome: { error: new Error('any') },
    rules: [],
    isContentCaptured: true,
    spanAttributes: {},
  })
  expect(JSON.parse(String(attributes['gen_ai.input.messages']))).toEqual(messages)
})

it('the span of a request has the time to its first token and the tokens from a cache', () => {
  const attributesOf = (firstTokenMs: number | null, details?: object) =>
    toSpan({
      request: toRequest(toPassThroughInput('chat', { messages: [] })),
      model: 'tiny',
      taskId: null,
      arrivedMs: 1000,
      arrivalTime: 0,
      firstTokenMs,
      endedMs: 3000,
      outcome: {
        result: {
          text: 'a',
          finishReason: 'stop',
          usage: { promptTokens: 40, completionTokens: 2, ...(details && { details }) },
        } as unknown as GenerationResult,
      },
      rules: [],
      isContentCaptured: false,
      spanAttributes: {},
    }).attributes
  const cached = attributesOf(1250, { prompt_tokens_details: { cached_tokens: 32 } })
  expect(cached).toMatchObject({
    'gen_ai.response.time_to_first_chunk': 0.25,
    'gen_ai.usage.input_tokens': 40,
    'gen_ai.usage.cache_read.input_tokens': 32,
  })
  const unknown = attributesOf(null, { prompt_tokens_details: 'any' })
  expect(unknown).not.toHaveProperty(['gen_ai.response.time_to_first_chunk'])
  expect(unknown).not.toHaveProperty(['gen_ai.usage.cache_read.input_tokens'])
})
