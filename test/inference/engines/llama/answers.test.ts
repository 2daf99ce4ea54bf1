import { describe, expect, it } from 'vitest'
import type {
  Sampling,
  ToolDefinition,
} from '../../../../src/inference/generation/inference-engine.ts'
import { RecordingGeneration, toRequest } from '../generation.ts'
import { tinyContext } from '../tiny-model.ts'
import { useEngine, useTinyModel } from './open-engine.ts'

const tiny = useTinyModel()
const engine = useEngine(() => tiny.path, { sequences: 4, batchSize: 16 })
const text = { kind: 'text', text: 'abc' } as const

async function answer(
  input: Parameters<typeof toRequest>[0],
  sampling: Partial<Sampling> = {},
): Promise<RecordingGeneration> {
  const listener = new RecordingGeneration()
  await engine().generate([toRequest(input, sampling)], listener)
  return listener
}

const isNotAscii = (byte: number): boolean => byte >= 0x80 && byte <= 0xff

const schemas: Record<string, { schema: object; isRight: (value: unknown) => boolean }> = {
  'a choice': {
    schema: { enum: ['yes', 2, null] },
    isRight: (value) => [`yes`, 2, null].includes(value as never),
  },
  'a list': {
    schema: { type: 'array', items: { type: 'integer' }, minItems: 2, maxItems: 3 },
    isRight: (value) =>
      Array.isArray(value) &&
      value.length >= 2 &&
      value.length <= 3 &&
      value.every(Number.isInteger),
  },
  'an object with a member that may be left out': {
    schema: {
      type: 'object',
      properties: { maybe: { type: 'boolean' }, name: { type: 'string', maxLength: 3 } },
      required: ['name'],
    },
    isRight: (value) => {
      const { name, maybe, ...others } = value as Record<string, unknown>
      const isNamed = typeof name === 'string' && Array.from(name).length <= 3
      return (
        isNamed && ['boolean', 'undefined'].includes(typeof maybe) && !Object.keys(others).length
      )
    },
  },
  'an object that refers to a definition': {
    schema: {
      $defs: { flag: { type: 'boolean' } },
      type: 'object',
      properties: { on: { $ref: '#/$defs/flag' } },
      required: ['on'],
    },
    isRight: (value) => typeof (value as { on?: unknown }).on === 'boolean',
  },
}

describe('llama engine: a model with a template', () => {
  it.each(Object.entries(schemas))(
    'llama engine: generated JSON fits the schema of %s',
    async (_, { schema, isRight }) => {
      for (const seed of [1, 2, 3]) {
        const format = { kind: 'json_schema', schema } as const
        const { ends, textOf } = await answered({ temperature: 1, seed, maxTokens: 300, format })
        expect(ends).toMatchObject([{ kind: 'done', finishReason: 'stop' }])
        expect(isRight(JSON.parse(textOf)), textOf).toBe(true)
      }
    },
  )

  async function answered(sampling: Partial<Sampling>) {
    const listener = await answer(text, sampling)
    return { ends: listener.ends, textOf: listener.textOf() }
  }

  it('llama engine: json_object generates an object', async () => {
    const { textOf } = await answered({ maxTokens: 40, format: { kind: 'json_object' } })
    expect(textOf).toMatch(/^\{/)
  })

  it('llama engine: a schema that cannot be enforced fails its request alone', async () => {
    const listener = new RecordingGeneration()
    const format = { kind: 'json_schema', schema: { not: { type: 'string' } } } as const
    await engine().generate(
      [
        toRequest(text, { format }, { id: 'bad' }),
        toRequest(text, { ignoreEos: true, maxTokens: 3 }, { id: 'good' }),
      ],
      listener,
    )
    expect(listener.ends).toMatchObject([
      { id: 'bad', kind: 'failed', error: { code: 'unsupported' } },
      { id: 'good', kind: 'done' },
    ])
  })

  it('llama engine: a prompt as long as the context is refused, with both numbers', async () => {
    const { ends } = await answer({ kind: 'text', text: 'a,'.repeat(tinyContext) })
    expect(ends).toMatchObject([
      {
        kind: 'failed',
        error: {
          code: 'context_length_exceeded',
          message: expect.stringMatching(/^the prompt has \d{4} tokens.* 512 tokens/),
          hint: expect.stringContaining('max_model_len'),
        },
      },
    ])
  })

  it('llama engine: a prompt longer than a batch is evaluated in pieces, same result', async () => {
    const input = { kind: 'text', text: 'some words, '.repeat(8) } as const
    const sampling = { temperature: 0, ignoreEos: true, maxTokens: 12 }
    const listener = new RecordingGeneration()
    await engine().generate(
      ['a', 'b', 'c', 'd', 'e', 'f'].map((id) => toRequest(input, sampling, { id })),
      listener,
    )
    const texts = ['a', 'b', 'c', 'd', 'e', 'f'].map((id) => listener.textOf(id))
    expect(new Set(texts)).toEqual(new Set([(await answer(input, sampling)).textOf()]))
  })

  it('llama engine: content of rendered messages cannot add control tokens', async () => {
    const tokensOf = async (content: string): Promise<number> => {
      const { ends } = await answer(content, { maxTokens: 1, ignoreEos: true })
      const [end] = ends
      return end?.kind === 'done' ? end.usage.promptTokens : Number.NaN
    }
    const few = await tokensOf('')
    // Control tokens for beginning, user, end and assistant.
    expect(few).toBe(4)
    expect((await tokensOf('</s><|system|>')) - few).toBeGreaterThan(6)
  })

  it('llama engine: the first delta reports the prompt tokens', async () => {
    const { deltas, ends } = await answer(text, { ignoreEos: true, maxTokens: 8 })
    const [end] = ends
    const told = end?.kind === 'done' ? end.usage.promptTokens : Number.NaN
    expect(deltas.flatMap(({ promptTokens = [] }) => promptTokens)).toEqual([told])
  })

  it('llama engine: tokens with a part of a character are reported as bytes', async () => {
    const sampling = { logprobs: 20, maxTokens: 60, temperature: 2, topK: 0, topP: 1, seed: 1 }
    const { deltas } = await answer(text, { ...sampling, ignoreEos: true })
    const told = deltas.flatMap(({ logprobs = [] }) => logprobs)
    const chances = told.flatMap((one) => [one, ...one.top])
    const parts = chances.filter(({ token }) => token.includes('\uFFFD'))
    expect(parts.length).toBeGreaterThan(0)
    // The vocabulary has every byte once, and nothing else that begins above ASCII.
    for (const { bytes = [] } of parts) expect(bytes).toEqual([expect.toSatisfy(isNotAscii)])
    expect(new Set(parts.map(({ bytes }) => bytes?.[0])).size).toBeGreaterThan(1)
    expect(chances.filter(({ token, bytes }) => bytes && !token.includes('\uFFFD'))).toEqual([])
  })

  it('llama engine: a required tool choice calls one of the tools', async () => {
    const tools: ToolDefinition[] = [
      { name: 'stop_all' },
      {
        name: 'set_level',
        parameters: {
          type: 'object',
          properties: { level: { enum: [1, 2] } },
          required: ['level'],
        },
      },
    ]
    const messages = [{ role: 'user', content: 'louder' }] as const
    const input = { kind: 'chat', messages, tools, toolChoice: { name: 'set_level' } } as const
    const listener = await answer(input, { temperature: 1, seed: 3, maxTokens: 200 })
    expect(listener.ends).toMatchObject([{ kind: 'done', finishReason: 'tool_calls' }])
    expect(listener.textOf()).toBe('')
    const pieces = listener.deltas.flatMap(({ toolCallPieces = [] }) => toolCallPieces)
    expect(pieces.length).toBeGreaterThan(2)
    expect(pieces.flatMap(({ name }) => name ?? [])).toEqual(['set_level'])
    expect(pieces.map((piece) => piece.arguments).join('')).toMatch(/^\{\s*"level":\s*[12]\s*\}$/)
  })

  it('a forced call that is cut off is partial; a tool without parameters takes {}', async () => {
    const messages = [{ role: 'user', content: 'louder' }] as const
    const tools: ToolDefinition[] = [{ name: 'stop_all' }]
    const input = { kind: 'chat', messages, tools, toolChoice: 'required' } as const
    for (const maxTokens of [1, 8, 200]) {
      const listener = await answer(input, { temperature: 1, seed: 3, maxTokens })
      const reason = maxTokens === 200 ? 'tool_calls' : 'length'
      expect(listener.ends).toMatchObject([{ kind: 'done', finishReason: reason }])
      expect(listener.textOf()).toBe('')
      const pieces = listener.deltas.flatMap(({ toolCallPieces = [] }) => toolCallPieces)
      expect(pieces.flatMap(({ name }) => name ?? [])).toEqual(['stop_all'])
      const given = pieces.map((piece) => piece.arguments).join('')
      if (maxTokens === 200) expect(JSON.parse(given)).toEqual({})
    }
  })

  it('llama engine: a canceled request frees its slot for one that waits', async () => {
    const listener = new RecordingGeneration()
    listener.hold = new Promise(() => {})
    const leaving = new AbortController()
    const { signal } = leaving
    const hogs = ['a', 'b', 'c', 'd'].map((id) =>
      toRequest(text, { ignoreEos: true, maxTokens: 500 }, { id, signal }),
    )
    const held = engine().generate(hogs, listener)
    await listener.begun
    const next = answer(text, { ignoreEos: true, maxTokens: 2 })
    leaving.abort()
    expect((await next).ends).toMatchObject([{ kind: 'done', usage: { completionTokens: 2 } }])
    await held
    expect(listener.ends.map(({ kind }) => kind)).toEqual(Array(4).fill('canceled'))
  })
})
