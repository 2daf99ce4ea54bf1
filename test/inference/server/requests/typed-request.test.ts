import { describe, expect, it } from 'vitest'
import { HttpError } from '../../../../src/runtime/http/http-error.ts'
import { toOutputFormat } from '../../../../src/inference/server/requests/typed-request.ts'

const formatOf = (fields: object) => toOutputFormat({ messages: [], ...fields })
const schema = { type: 'object' }

describe('outputFormatOf', () => {
  it.each([
    [{}, undefined],
    [{ response_format: { type: 'text' } }, undefined],
    [{ response_format: { type: 'json_object' } }, { kind: 'json_object' }],
    [{ response_format: { type: 'json_object', schema } }, { kind: 'json_schema', schema }],
    [
      { response_format: { type: 'json_schema', json_schema: { schema } } },
      { kind: 'json_schema', schema },
    ],
    [{ guided_json: schema }, { kind: 'json_schema', schema, field: 'guided_json' }],
    [{ guided_json: '{"type":"object"}' }, { kind: 'json_schema', schema, field: 'guided_json' }],
    [{ json_schema: schema }, { kind: 'json_schema', schema, field: 'json_schema' }],
    [{ guided_regex: 'a+' }, { kind: 'regex', pattern: 'a+', field: 'guided_regex' }],
    [{ guided_choice: ['a'] }, { kind: 'choice', choices: ['a'], field: 'guided_choice' }],
    [{ guided_grammar: 'g' }, { kind: 'grammar', grammar: 'g', field: 'guided_grammar' }],
    [{ grammar: 'g' }, { kind: 'grammar', grammar: 'g', field: 'grammar' }],
    [{ grammar: '', guided_json: null }, undefined],
    [
      { structured_outputs: { json: schema } },
      { kind: 'json_schema', schema, field: 'structured_outputs.json' },
    ],
    [
      { structured_outputs: { regex: 'a+' } },
      { kind: 'regex', pattern: 'a+', field: 'structured_outputs.regex' },
    ],
    [
      { structured_outputs: { choice: ['a'] } },
      { kind: 'choice', choices: ['a'], field: 'structured_outputs.choice' },
    ],
    [
      { structured_outputs: { grammar: 'g' } },
      { kind: 'grammar', grammar: 'g', field: 'structured_outputs.grammar' },
    ],
    [{ structured_outputs: { json_object: true } }, { kind: 'json_object' }],
    [{ structured_outputs: { json_object: false, regex: null } }, undefined],
  ])('%j', (fields, format) => {
    expect(formatOf(fields)).toEqual(format)
  })

  it.each([
    [{ guided_regex: 'a', guided_choice: ['a'] }, 'guided_regex'],
    [{ grammar: 'g', response_format: { type: 'json_object' } }, 'grammar'],
    [{ guided_json: 'no schema' }, 'guided_json'],
    [{ structured_outputs: { json: schema, regex: 'a' } }, 'structured_outputs.json'],
    [{ structured_outputs: { json: 'no schema' } }, 'structured_outputs.json'],
    [{ guided_json: '1' }, 'guided_json'],
  ])('%j is refused', (fields, param) => {
    expect(() => formatOf(fields)).toThrow(HttpError)
    expect(() => formatOf(fields)).toThrow(expect.objectContaining({ status: 400, param }))
  })
})
