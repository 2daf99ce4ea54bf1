import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import {
  basicFields,
  requestFields,
} from '../../../../src/inference/generation/fields/request-fields.ts'
import { hello, post, serve } from '../served.ts'

interface KnownField {
  readonly name: string
  /** A value that changes an answer. */
  readonly changes: unknown
  /** Values that change no answer. */
  readonly neutral?: readonly unknown[]
  /** The advice of the message, if it is not to use another engine. */
  readonly advice?: string
}

const knownFields = readFileSync(join(import.meta.dirname, 'known-fields.jsonl'), 'utf8')
  .trimEnd()
  .split('\n')
  .map((line) => JSON.parse(line) as KnownField)
const chatPath = '/v1/chat/completions'

describe('fields of other servers that no engine supports by itself', () => {
  it('row 68: a value that would change the answer gets 400 with its field', async () => {
    await using served = await serve()
    const engines = "The engines 'process' and 'openai' pass it on to a server that may support it."
    for (const { name, changes, advice = engines } of knownFields) {
      const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, [name]: changes })
      expect([name, status]).toEqual([name, 400])
      expect(json.error).toEqual({
        message: expect.stringMatching(
          `'${name}' is not supported by the engine of this model. ${advice}`,
        ),
        type: 'invalid_request_error',
        param: name,
        code: 'unsupported_parameter',
      })
    }
    expect(served.generator.requests).toEqual([])
  })

  const tools = [{ type: 'function', function: { name: 'add' } }]

  it('values that change nothing are accepted, and are not listed as ignored', async () => {
    await using served = await serve()
    for (const { name, neutral = [] } of knownFields) {
      for (const value of [null, ...neutral]) {
        const { status, headers } = await post(`${served.url}${chatPath}`, {
          ...hello,
          // The public API takes this field with tools only.
          ...(name === 'parallel_tool_calls' ? { tools } : {}),
          [name]: value,
        })
        const ignored = headers.get('x-tutti-ignored-fields')
        expect([name, value, status, ignored]).toEqual([name, value, 200, null])
      }
    }
  })

  it.each([
    ['n_predict', -1],
    ['repeat_last_n', -1],
    ['reasoning_format', 'deepseek-legacy'],
    ['think', true],
    ['think', 'high'],
    ['samplers', []],
    ['allowed_token_ids', []],
    ['web_search_options', { search_context_size: 'low' }],
  ])('%s: %j is not the same as none', async (name, value) => {
    await using served = await serve()
    const { status, json } = await post(`${served.url}${chatPath}`, { ...hello, [name]: value })
    expect([status, json.error.param]).toEqual([400, name])
  })

  it('the rows and the table have the same fields', () => {
    const ofEngines = Object.entries(requestFields)
      .filter(([name, { reader }]) => reader === 'engine' && !basicFields.has(name))
      .map(([name]) => name)
    const rows = knownFields.map(({ name }) => name)
    expect(rows.toSorted()).toEqual(ofEngines.toSorted())
  })
})
