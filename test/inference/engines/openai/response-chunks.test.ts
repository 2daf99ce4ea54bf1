import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ResponseChunks } from '../../../../src/inference/engines/openai/response-chunks.ts'
import { ToolCallAssembler } from '../../../../src/inference/generation/fields/answer-fields.ts'
import { assertProperty } from '../../../property.ts'

const take = (chunks: ResponseChunks, chunk: unknown) => chunks.read(JSON.stringify(chunk))
const contractError: unknown = expect.objectContaining({ code: 'EngineContractError' })

describe('ResponseChunks', () => {
  it.each([
    { choices: [{ delta: { role: 'assistant', content: '' } }] },
    { choices: [{ delta: { content: null } }] },
    { choices: [] },
    { choices: [null] },
    { choices: {}, usage: { prompt_tokens: 'many', completion_tokens: 1 } },
    {},
  ])('ResponseChunks returns no delta for a chunk without text: %j', (chunk) => {
    const chunks = new ResponseChunks()
    expect(take(chunks, chunk)).toBeNull()
    expect([chunks.usage, chunks.finishReason, chunks.takeRest()]).toEqual([null, null, undefined])
  })

  it.each(['', '1', 'null', '{"a":', 'Internal Server Error'])(
    'ResponseChunks rejects %j as a chunk',
    (data) => {
      expect(() => new ResponseChunks().read(data)).toThrow(contractError)
    },
  )

  it('ResponseChunks uses the last usage if there are several', () => {
    const chunks = new ResponseChunks()
    take(chunks, { usage: { prompt_tokens: 1, completion_tokens: 1 } })
    take(chunks, { usage: { prompt_tokens: 1, completion_tokens: 2 }, choices: [] })
    take(chunks, { usage: null })
    expect(chunks.usage).toEqual({ promptTokens: 1, completionTokens: 2 })
  })

  it('ResponseChunks reads log probabilities in the form of either endpoint', () => {
    const top = [{ token: 'b', logprob: -2 }]
    const expected = { text: 'a', logprobs: [{ token: 'a', logprob: -1, top }] }
    const content = [{ token: 'a', logprob: -1, top_logprobs: top }]
    const chat = { choices: [{ delta: { content: 'a' }, logprobs: { content } }] }
    expect(take(new ResponseChunks(), chat)).toEqual({
      ...expected,
      fields: { choice: { logprobs: { content } } },
    })
    const lists = { tokens: ['a'], token_logprobs: [-1], top_logprobs: [{ b: -2 }] }
    const text = { choices: [{ text: 'a', logprobs: lists }] }
    expect(take(new ResponseChunks(), text)).toEqual({
      ...expected,
      fields: { choice: { logprobs: lists } },
    })
    const bare = { choices: [{ text: 'a', logprobs: { tokens: ['a'], token_logprobs: [-1] } }] }
    expect(take(new ResponseChunks(), bare)).toMatchObject({ logprobs: [{ top: [] }] })
  })

  it.each([
    [
      [0xe2, 0x80],
      [0xe2, 0x80],
    ],
    [[], []],
    [null, undefined],
    [[256], undefined],
    [[-1], undefined],
    ['\\xe2', undefined],
    [[1.5], undefined],
  ])('ResponseChunks reads the bytes %j of a token as %j', (told, bytes) => {
    const pair = { token: '\uFFFD', logprob: -1, bytes: told }
    const content = [{ ...pair, top_logprobs: [pair] }]
    const chunk = { choices: [{ delta: { content: '' }, logprobs: { content } }] }
    const one = { token: '\uFFFD', logprob: -1, ...(bytes === undefined ? {} : { bytes }) }
    const delta = take(new ResponseChunks(), chunk)
    expect(delta).toStrictEqual({
      text: '',
      logprobs: [{ ...one, top: [one] }],
      fields: { choice: { logprobs: { content } } },
    })
  })

  it('the pieces of tool calls are whole together, wherever their arguments were cut', () => {
    const call = fc.record({
      id: fc.uuid(),
      name: fc.string({ minLength: 1 }),
      arguments: fc.string(),
    })
    const cuts = fc.infiniteStream(fc.integer({ min: 0, max: 5 }))
    assertProperty(
      fc.property(fc.array(call, { minLength: 1, maxLength: 4 }), cuts, (calls, lengths) => {
        const chunks = new ResponseChunks()
        const whole = new ToolCallAssembler()
        const tell = (part: unknown): void => {
          const delta = take(chunks, { choices: [{ delta: { tool_calls: [part] } }] })
          for (const piece of delta?.toolCallPieces ?? []) whole.add(piece)
        }
        const left = calls.map((one) => one.arguments)
        for (const [index, { id, name }] of calls.entries()) tell({ index, id, function: { name } })
        while (left.some((text) => text !== '')) {
          for (const [index, text] of left.entries()) {
            const length = Number(lengths.next().value)
            tell({ index, function: { arguments: text.slice(0, length) } })
            left[index] = text.slice(length)
          }
        }
        expect(whole.drain()).toEqual(calls)
      }),
    )
  })

  it('ResponseChunks accepts whole calls without an index or an id', () => {
    const chunks = new ResponseChunks()
    const calls = [{ function: { name: 'a', arguments: '{}' } }, { function: { name: 'b' } }]
    const delta = take(chunks, { choices: [{ delta: { tool_calls: calls } }] })
    const [first, second] = delta?.toolCallPieces ?? []
    expect([first?.name, first?.arguments, second?.name]).toEqual(['a', '{}', 'b'])
    expect(first?.id).toMatch(/^call_\w+$/)
    expect(first?.id).not.toBe(second?.id)
  })

  it('ResponseChunks limits the number and the size of tool calls', () => {
    const chunks = new ResponseChunks()
    const endless = { index: 0, function: { arguments: 'x'.repeat(2 ** 20) } }
    const tell = () => take(chunks, { choices: [{ delta: { tool_calls: [endless] } }] })
    tell()
    expect(tell).toThrow(contractError)
  })
})
