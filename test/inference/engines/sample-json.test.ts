import { describe, expect, it } from 'vitest'
import { sampleJson } from '../../../src/inference/engines/sample-json.ts'

describe('a sample of a schema', () => {
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
  ])('of %j is %j', (schema, expected) => {
    expect(sampleJson(schema, 'hi')).toEqual(expected)
  })

  it.each([
    [{ $ref: '#/$defs/node' }],
    [{ type: 'string', pattern: '^a' }],
    [{ allOf: [] }],
    [{ type: 'date' }],
    [false],
  ])('of %j is refused', (schema) => {
    expect(() => sampleJson(schema, 'hi')).toThrow('the echo engine cannot answer to')
  })
})
