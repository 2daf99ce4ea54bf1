import { describe, expect, it } from 'vitest'
import { toApiRequest as toRawCall } from '../../../../src/inference/engines/openai/request-body.ts'
import { toPassThroughInput } from '../../../../src/inference/generation/fields/message-text.ts'
import type {
  GenerationRequest,
  Sampling,
} from '../../../../src/inference/generation/inference-engine.ts'
import { toRequest } from '../generation.ts'

/** The call with its body read again. */
function toApiRequest(model: string, request: GenerationRequest) {
  const { path, body } = toRawCall(model, request)
  return { path, body: JSON.parse(body()) as unknown }
}

const plain = {
  model: 'm',
  stream: true,
  stream_options: { include_usage: true },
  max_tokens: 100,
  temperature: 0.5,
  top_p: 0.95,
}

describe('toApiRequest', () => {
  it('toApiRequest omits fields that would change nothing', () => {
    expect(toApiRequest('m', toRequest('hi'))).toEqual({
      path: '/chat/completions',
      body: { ...plain, messages: [{ role: 'user', content: 'hi' }] },
    })
    expect(toApiRequest('m', toRequest({ kind: 'text', text: 'hi' }))).toEqual({
      path: '/completions',
      body: { ...plain, prompt: 'hi' },
    })
  })

  const schema = { type: 'object' }
  it.each<[Partial<Sampling>, object, object?]>([
    [
      { maxTokens: 7, temperature: 0, topP: 1 },
      { max_tokens: 7, temperature: 0, top_p: 1 },
    ],
    [
      { topK: 40, minP: 0.1 },
      { top_k: 40, min_p: 0.1 },
    ],
    [{ repetitionPenalty: 1.1 }, { repetition_penalty: 1.1 }],
    [
      { seed: 0, stop: ['a', 'b'], ignoreEos: true },
      { seed: 0, stop: ['a', 'b'], ignore_eos: true },
    ],
    [{ logprobs: 0 }, { logprobs: true, top_logprobs: 0 }, { logprobs: 0 }],
    [{ logprobs: 3 }, { logprobs: true, top_logprobs: 3 }, { logprobs: 3 }],
    [{ format: { kind: 'json_object' } }, { response_format: { type: 'json_object' } }],
    [
      { format: { kind: 'json_schema', schema } },
      {
        response_format: {
          type: 'json_schema',
          json_schema: { name: 'answer', strict: true, schema },
        },
      },
    ],
  ])('toApiRequest encodes %j', (sampling, chat, text = chat) => {
    const messages = [{ role: 'user', content: 'hi' }]
    expect(toApiRequest('m', toRequest('hi', sampling)).body).toEqual({
      ...plain,
      messages,
      ...chat,
    })
    const raw = toRequest({ kind: 'text', text: 'hi' }, sampling)
    expect(toApiRequest('m', raw).body).toEqual({ ...plain, prompt: 'hi', ...text })
  })

  it('toApiRequest encodes tools, the tool choice, and the results of earlier calls', () => {
    const { body } = toApiRequest(
      'm',
      toRequest({
        kind: 'chat',
        tools: [{ name: 'look', description: 'Looks.', parameters: schema }, { name: 'wait' }],
        toolChoice: { name: 'look' },
        messages: [
          { role: 'assistant', content: '', toolCalls: [{ id: 'c', name: 'n', arguments: '{}' }] },
          { role: 'tool', content: 'seen', toolCallId: 'c' },
          { role: 'user', content: '', name: 'ann' },
        ],
      }),
    )
    expect(body).toEqual({
      ...plain,
      tools: [
        { type: 'function', function: { name: 'look', description: 'Looks.', parameters: schema } },
        { type: 'function', function: { name: 'wait' } },
      ],
      tool_choice: { type: 'function', function: { name: 'look' } },
      messages: [
        {
          role: 'assistant',
          content: null,
          tool_calls: [{ id: 'c', type: 'function', function: { name: 'n', arguments: '{}' } }],
        },
        { role: 'tool', content: 'seen', tool_call_id: 'c' },
        { role: 'user', content: '', name: 'ann' },
      ],
    })
  })

  it('toApiRequest encodes once what the choices of a request share', () => {
    let reads = 0
    const noted = <T>(value: T): T => {
      reads++
      return value
    }
    const content = { toJSON: () => noted('a "long" text') }
    const tools = [{ type: 'function', function: { toJSON: () => noted(schema) } }]
    const body = { messages: [{ role: 'user', content }], tools, seed: 0 }
    const input = toPassThroughInput('chat', body)
    const bodies = [1, 2, 3].map((seed) => toApiRequest('m', toRequest(input, { seed })).body)
    expect(bodies).toMatchObject(
      [1, 2, 3].map((seed) => ({
        seed,
        messages: [{ role: 'user', content: 'a "long" text' }],
        tools: [{ type: 'function', function: schema }],
      })),
    )
    expect(reads).toBe(2)
  })

  it('toApiRequest omits the tool choice without tools', () => {
    const input = { kind: 'chat', messages: [], tools: [], toolChoice: 'required' } as const
    expect(toApiRequest('m', toRequest(input)).body).toEqual({ ...plain, messages: [] })
    const tools = [{ name: 'look' }]
    expect(toApiRequest('m', toRequest({ ...input, tools })).body).toMatchObject({
      tool_choice: 'required',
    })
  })
})
