import { expect, it } from 'vitest'
import { openBackend } from '../../open-backend.ts'
import { hello, post } from '../served.ts'

const chat = '/v1/chat/completions'
const completion = '/v1/completions'

interface Bound {
  readonly path: string
  readonly field: string
  readonly accepted: readonly unknown[]
  readonly refused: readonly unknown[]
  /** The `param` of the error, if it differs from the field. */
  readonly param?: string
  readonly others?: object
}

const between = (min: number, max: number, step: number): Omit<Bound, 'path' | 'field'> => ({
  accepted: [min, max, null],
  refused: [min - step, max + step],
})
const onBoth = (field: string, rest: Omit<Bound, 'path' | 'field'>): Bound[] =>
  [chat, completion].map((path) => ({ path, field, ...rest }))
const name = (length: number): string => 'a'.repeat(length)
const tool = (text: string): unknown => [{ type: 'function', function: { name: text } }]
const format = (text: string): unknown => ({
  type: 'json_schema',
  json_schema: { name: text, schema: {} },
})

/**
 * Bounds in the OpenAPI document of the public API. Ours are wider for `stop` (16 texts), and
 * narrower for `seed` (integers that JSON keeps exactly) and `prompt` (not null).
 */
const bounds: readonly Bound[] = [
  ...onBoth('temperature', between(0, 2, 0.01)),
  ...onBoth('top_p', between(0, 1, 0.01)),
  ...onBoth('frequency_penalty', between(-2, 2, 0.01)),
  ...onBoth('presence_penalty', between(-2, 2, 0.01)),
  ...onBoth('n', between(1, 128, 1)),
  ...onBoth('stop', { accepted: ['a', ['a', 'b', 'c', 'd'], null], refused: [''] }),
  ...onBoth('logit_bias', {
    accepted: [{ 5: -100 }, { 5: 100 }, {}, null],
    refused: [{ 5: -101 }, { 5: 101 }],
    param: 'logit_bias.5',
  }),
  ...onBoth('seed', { accepted: [-1, 0, 2 ** 53 - 1, null], refused: [0.5, '1'] }),
  ...onBoth('stream', { accepted: [false, null], refused: ['false', 0] }),
  ...onBoth('user', { accepted: ['somebody'], refused: [1] }),
  { path: chat, field: 'max_tokens', accepted: [1, null], refused: [-1, 0, 1.5] },
  { path: chat, field: 'max_completion_tokens', accepted: [1, null], refused: [-1, 0, 1.5] },
  { path: chat, field: 'logprobs', accepted: [true, false, null], refused: [1] },
  { path: chat, field: 'top_logprobs', ...between(0, 20, 1), others: { logprobs: true } },
  {
    path: chat,
    field: 'tools',
    accepted: [tool(name(64)), tool('a-Z_0')],
    refused: [tool(name(65)), tool('a.b'), tool('a b')],
    param: 'tools[0].function.name',
  },
  {
    path: chat,
    field: 'response_format',
    accepted: [format(name(64)), { type: 'text' }, { type: 'json_object' }],
    refused: [format(name(65)), format('a.b')],
    param: 'response_format.json_schema.name',
  },
  { path: completion, field: 'max_tokens', accepted: [0, 16, null], refused: [-1, 0.5] },
  { path: completion, field: 'logprobs', ...between(0, 5, 1) },
  { path: completion, field: 'echo', accepted: [true, false, null], refused: [1] },
  { path: completion, field: 'best_of', ...between(1, 20, 1) },
  { path: completion, field: 'prompt', accepted: ['a', ['a', 'b']], refused: [[], 1] },
]

it('values within documented bounds are answered, others get 400 with their field', async () => {
  const { endpoint } = await openBackend({ port: 0 })
  let rows = 0
  for (const { path, field, accepted, refused, param = field, others } of bounds) {
    const ask = (value: unknown) => {
      const min = path === chat ? hello : { prompt: 'a', max_tokens: 2 }
      return post(`${endpoint}${path}`, { ...min, ...others, [field]: value })
    }
    for (const value of accepted) {
      const { status } = await ask(value)
      expect([path, field, value, status]).toEqual([path, field, value, 200])
      rows++
    }
    for (const value of refused) {
      const { status, json } = await ask(value)
      expect([path, field, value, status]).toEqual([path, field, value, 400])
      expect(json.error, `${path} ${field} ${JSON.stringify(value)}`).toMatchObject({
        type: 'invalid_request_error',
        param,
      })
      rows++
    }
  }
  expect(rows).toBeGreaterThan(100)
})
