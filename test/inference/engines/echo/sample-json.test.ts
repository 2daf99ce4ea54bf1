import { describe, expect, it } from 'vitest'
import { sampleJson } from '../../../../src/inference/engines/echo/sample-json.ts'

/** An array of arrays of ... such items, 1024 each. */
function arrays(depth: number, items: object): object {
  const inner = depth === 1 ? items : arrays(depth - 1, items)
  return { type: 'array', minItems: 1024, items: inner }
}

describe('sampleJson', () => {
  it.each([
    [{ type: 'string' }, 'hi'],
    [{}, 'hi'],
    [true, 'hi'],
    [{ type: 'string', maxLength: 1 }, 'h'],
    [{ type: 'string', minLength: 4 }, 'hi..'],
    [{ type: ['null', 'string'] }, null],
    [{ type: 'boolean' }, true],
    [{ const: 7 }, 7],
    [{ enum: ['yes', 'no'] }, 'yes'],
    [{ anyOf: [{ type: 'integer' }, { type: 'null' }] }, 0],
    [{ oneOf: [{ type: 'null' }] }, null],
    [{ type: 'integer', minimum: 2.5 }, 3],
    [{ type: 'integer', exclusiveMinimum: 2 }, 3],
    [{ type: 'number', maximum: -1.5 }, -2],
    [{ type: 'number', exclusiveMaximum: 0 }, -1],
    [{ type: 'number', minimum: 0.2, maximum: 0.8 }, 0.5],
    [{ type: 'number', exclusiveMinimum: -0.75, exclusiveMaximum: -0.25 }, -0.5],
    [{ type: 'number', minimum: 0.5, maximum: 0.5 }, 0.5],
    [{ type: 'number', minimum: 0.2, maximum: 3 }, 1],
    [{ type: 'array', items: { type: 'integer' }, minItems: 2 }, [0, 0]],
    [{ items: { type: 'integer' } }, []],
    [{ type: 'object' }, {}],
    [
      { properties: { a: { type: 'null' } }, required: ['a', 'b'] },
      { a: null, b: 'hi' },
    ],
    [
      { type: 'object', properties: { list: { type: 'array', items: {}, minItems: 1 } } },
      { list: ['hi'] },
    ],
  ])('sampleJson for %j returns %j', (schema, expected) => {
    expect(sampleJson(schema, 'hi')).toEqual(expected)
  })

  it.each([
    [{ $ref: '#/$defs/node' }],
    [{ type: 'string', pattern: '^a' }],
    [{ allOf: [] }],
    [{ type: 'date' }],
    [{ type: 'integer', minimum: 0.2, maximum: 0.8 }],
    [{ type: 'number', minimum: 2, maximum: 1 }],
    [{ type: 'number', minimum: 0.5, exclusiveMaximum: 0.5 }],
    [false],
    [{ enum: [] }],
    [{ anyOf: [] }],
    [{ oneOf: [] }],
    [{ type: 'string', minLength: 2 ** 23 }],
    [{ type: 'string', minLength: 2 ** 30 }],
    [{ type: 'array', minItems: 1e300 }],
    [arrays(3, { type: 'integer' })],
    [arrays(1, { const: 'x'.repeat(10_000) })],
    [arrays(1, { required: ['x'.repeat(10_000)] })],
    [arrays(1, { type: 'string', minLength: 10_000 })],
  ])('sampleJson refuses %j', (schema) => {
    const sample = (): unknown => sampleJson(schema, 'hi')
    expect(sample).toThrow('the echo engine does not support')
    expect(sample).toThrow(expect.objectContaining({ code: 'unsupported' }))
  })

  it('sampleJson limits the size of a value, repeated text included', () => {
    const text = 'x'.repeat(10_000)
    expect(sampleJson({ minItems: 3, type: 'array' }, text)).toEqual([text, text, text])
    expect(() => sampleJson(arrays(1, {}), text)).toThrow('the echo engine does not support')
  })
})
