import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import { describe, expect, it } from 'vitest'
import { toJsonGrammar } from '../../../../../src/inference/engines/llama/grammar/json-grammar.ts'
import { byRun, chooseSeed, createRandom } from '../../../../long-run.ts'
import { acceptorOf, generatorOf } from './grammar-text.ts'

type Row = readonly [object, readonly unknown[], readonly unknown[]]

/** For each keyword that clients send: a schema, values that fit it, and values that do not. */
const keywords: readonly Row[] = [
  [{ type: 'integer', minimum: 3, maximum: 120 }, [3, 9, 10, 99, 100, 120], [2, 121, 1000, -5]],
  [{ type: 'integer', minimum: -12, maximum: 7 }, [-12, -9, -1, 0, 7], [-13, 8, 12]],
  [{ type: 'integer', minimum: 0 }, [0, 5, 123456789], [-1]],
  [{ type: 'integer', maximum: -1 }, [-1, -99], [0, 1]],
  [{ type: 'integer', exclusiveMinimum: 0, exclusiveMaximum: 10 }, [1, 9], [0, 10]],
  [{ type: 'number', minimum: 0, maximum: 1 }, [0, 0.25, 1], [1.5, 2, -0.5]],
  [{ type: 'number', exclusiveMinimum: 0 }, [0.1, 3, 12.5], [0, -1]],
  [{ type: 'number', minimum: 0.5, maximum: 2.75 }, [0.5, 0.75, 1, 2.75], [0.4, 2.8, 3]],
  [{ type: 'number', maximum: -1.5 }, [-1.5, -2, -30.25], [-1, 0, 2]],
  [{ type: 'string', pattern: '^[A-Z]{2}-\\d{3,4}$' }, ['AB-123', 'XY-9999'], ['ab-123', 'AB-12']],
  [{ type: 'string', pattern: 'cat|dog' }, ['cat', 'a dog!'], ['bird']],
  [{ type: 'string', pattern: '^(?:a|b)+c?$' }, ['abab', 'ac'], ['c', 'abcc']],
  [{ type: 'string', pattern: '^"x\\\\$' }, ['"x\\'], ['x']],
  [{ type: 'string', pattern: '^[^a-c]$' }, ['d', 'é'], ['a', 'dd']],
  [{ type: 'string', pattern: '^\\w+@\\S*$' }, ['me@x'], ['me @x', '@']],
  [{ type: 'string', format: 'date' }, ['2026-11-16'], ['2026-13-01', 'today']],
  [{ type: 'string', format: 'time' }, ['23:59:59Z'], ['25:00:00Z']],
  [{ type: 'string', format: 'date-time' }, ['2026-11-16T20:00:00+01:00'], ['2026-11-16']],
  [{ type: 'string', format: 'duration' }, ['P3DT4H', 'PT5M'], ['3 days']],
  [{ type: 'string', format: 'email' }, ['ada@example.org'], ['ada', 'a@b']],
  [{ type: 'string', format: 'uuid' }, ['123e4567-e89b-42d3-a456-426614174000'], ['123']],
  [{ type: 'string', format: 'hostname' }, ['www.example.org'], ['-a.b']],
  [{ type: 'string', format: 'ipv4' }, ['192.168.0.1'], ['256.1.1.1']],
  [{ type: 'string', format: 'ipv6' }, ['2001:db8:0:0:0:0:0:1'], ['::g']],
  [{ type: 'string', format: 'uri' }, ['https://example.org/a/b'], ['example']],
  [{ type: 'string', format: 'password' }, ['anything'], []],
  [{ type: 'string', minLength: 2, maxLength: 3 }, ['ab', 'abc'], ['a', 'abcd']],
  [
    { type: 'array', items: { enum: ['a', 'b', 'c'] }, uniqueItems: true, minItems: 1 },
    [['a'], ['c', 'a'], ['b', 'a', 'c']],
    [[], ['a', 'a'], ['a', 'b', 'a']],
  ],
  [
    { type: 'array', items: { type: 'boolean' }, uniqueItems: true },
    [[], [true, false]],
    [[true, true]],
  ],
  [{ type: 'array', items: {}, uniqueItems: true, maxItems: 1 }, [[], [1]], [[1, 1]]],
  [
    {
      type: 'object',
      propertyNames: { type: 'string' },
      additionalProperties: { type: 'integer' },
    },
    [{}, { a: 1, b: 2 }],
    [{ a: 'x' }],
  ],
  [
    { type: 'object', propertyNames: { pattern: '^[a-z]+$' }, additionalProperties: true },
    [{ abc: 1 }],
    [{ A: 1 }],
  ],
  [{ enum: ['x', 2] }, ['x', 2], ['y', 3]],
  [{ const: 'x' }, ['x'], ['y']],
  [{ anyOf: [{ type: 'integer' }, { type: 'null' }] }, [1, null], ['a']],
  [{ oneOf: [{ const: 1 }, { const: 2 }] }, [1, 2], [3]],
  [{ allOf: [{ type: 'boolean' }] }, [true], [1]],
  [{ $defs: { a: { const: 1 } }, $ref: '#/$defs/a' }, [1], [2]],
  [{ $defs: { 'a/b<c>': { const: 1 } }, $ref: '#/$defs/a~1b%3Cc%3E' }, [1], [2]],
  [{ type: ['string', 'null'], title: 't', description: 'd', default: null }, ['a', null], [1]],
]

const none = { type: 'null' }
const int = { type: 'integer' }
const draft7 = { $schema: 'http://json-schema.org/draft-07/schema#' }

const lists: readonly Row[] = [
  [{ type: 'array', prefixItems: [{ const: 1 }], minItems: 1, items: false }, [[1]], [[2], [1, 1]]],
  [
    { prefixItems: [int, none], items: int, minItems: 2 },
    [
      [1, null],
      [1, null, 5],
    ],
    [[1], [1, null, null]],
  ],
  [{ prefixItems: [int], minItems: 3, maxItems: 3 }, [[1, 'x', null]], [[1], [1, 2], ['x', 1, 2]]],
  [{ prefixItems: [int, int, int], minItems: 1, maxItems: 2 }, [[1, 2]], [[1, 2, 3]]],
  [
    { ...draft7, type: 'array', items: [int, none], minItems: 2, maxItems: 2 },
    [[1, null]],
    [[null, 1], [1]],
  ],
  [
    { ...draft7, type: 'array', items: [int, none], additionalItems: false },
    [[1, null]],
    [[1, null, 1]],
  ],
  [{ ...draft7, type: 'array', items: [int], additionalItems: none }, [[1], [1, null]], [[1, 1]]],
  [{ ...draft7, items: int, additionalItems: false }, [[], [1, 2]], [['x']]],
  [{ items: false }, [[]], [[1]]],
  [{ prefixItems: [int], unevaluatedItems: false }, [[1]], [[1, 1]]],
  [{ type: 'array', minItems: 2 }, [[1, 2]], [[1], []]],
]

const objects: readonly Row[] = [
  [{ type: 'object', additionalProperties: int, minProperties: 1 }, [{ a: 1 }], [{}]],
  [{ properties: { a: int, b: int }, minProperties: 1 }, [{ a: 1 }, { b: 1 }], [{}]],
  [{ type: 'object', maxProperties: 2 }, [{}, { a: 1, b: 2 }], [{ a: 1, b: 2, c: 3 }]],
  [
    { required: ['a'], additionalProperties: int, maxProperties: 2 },
    [{ a: 1, b: 2 }],
    [{ a: 1, b: 2, c: 3 }],
  ],
  [{ properties: { a: int, b: false } }, [{ a: 1 }, {}], [{ b: 1 }]],
  [{ properties: { a: int }, unevaluatedProperties: false }, [{ a: 1 }], [{ b: 1 }]],
  [{ properties: { a: int }, unevaluatedProperties: none }, [{ a: 1, b: null }], [{ b: 1 }]],
  [
    { properties: { a: none }, additionalProperties: int },
    [{ a: null, b: 1 }, { ab: 1, A: 2 }, { '': 1 }],
    [{ a: 1 }],
  ],
  [
    { properties: { ab: none, abc: none, x: none }, additionalProperties: int },
    [{ a: 1, abcd: 1, xx: 1 }],
    [{ ab: 1 }, { abc: 1 }, { x: 1 }],
  ],
  [
    { properties: { 'a"': none, a: none, '\\': none, é: none }, additionalProperties: int },
    [{ ab: 1, e: 1 }, {}],
    [{ 'a"': 1 }, { é: 1 }, { '\\': 1 }],
  ],
  [{ required: ['k'], additionalProperties: int }, [{ k: 1, l: 2 }], [{ l: 2 }]],
  [
    { type: 'object', propertyNames: { enum: ['a', 'b'] }, additionalProperties: int },
    [{}, { b: 1 }, { a: 1, b: 2 }],
    [{ c: 1 }, { a: 'x' }],
  ],
  [
    { type: 'object', propertyNames: { enum: ['a'] }, required: ['a'], additionalProperties: int },
    [{ a: 1 }],
    [{}, { a: 1, b: 1 }],
  ],
  [{ properties: { a: int, b: int }, propertyNames: { enum: ['a'] } }, [{ a: 1 }], [{ b: 1 }]],
  [
    { type: 'object', propertyNames: { minLength: 2, maxLength: 3 } },
    [{ ab: 1, abc: 1 }],
    [{ a: 1 }],
  ],
  [
    { properties: { a: int, b: int }, dependentRequired: { a: ['b'] } },
    [{}, { b: 1 }, { a: 1, b: 1 }],
    [{ a: 1 }],
  ],
  [
    { properties: { a: int }, required: ['a'], dependentRequired: { a: ['b'] } },
    [{ a: 1, b: 2 }],
    [{ a: 1 }],
  ],
  [
    { ...draft7, properties: { a: int, b: int }, dependencies: { a: ['b'] } },
    [{ b: 1 }, { a: 1, b: 1 }],
    [{ a: 1 }],
  ],
  [
    {
      ...draft7,
      properties: { a: int, b: int },
      dependencies: { a: { properties: { b: { const: 3 } }, required: ['b'] } },
    },
    [{ b: 1 }, { a: 1, b: 3 }],
    [{ a: 1 }, { a: 1, b: 1 }],
  ],
  [
    { properties: { a: int, b: int }, dependentSchemas: { a: { required: ['b'] } } },
    [{ b: 1 }, { a: 1, b: 3 }],
    [{ a: 1 }],
  ],
]

const named = { type: 'object', properties: { k: { const: 1 } }, required: ['k'] }
const withMember = (name: string, value: unknown) => ({
  properties: { [name]: { const: value } },
  required: [name],
})

/** Keywords beside those that refer to other schemas. */
const together: readonly Row[] = [
  [{ ...named, allOf: [withMember('x', 2)] }, [{ k: 1, x: 2 }], [{ x: 2 }, { k: 1 }]],
  [{ allOf: [named, withMember('x', 2)] }, [{ k: 1, x: 2 }], [{ x: 2 }, { k: 1 }]],
  [
    { ...named, oneOf: [withMember('x', 2), withMember('y', 3)] },
    [
      { k: 1, x: 2 },
      { k: 1, y: 3 },
    ],
    [{ x: 2 }, { k: 1 }, { k: 1, x: 3 }],
  ],
  [
    {
      properties: { a: int, b: int },
      additionalProperties: false,
      anyOf: [{ required: ['a'] }, { required: ['b'] }],
    },
    [{ a: 1 }, { b: 1 }, { a: 1, b: 1 }],
    [{}, { a: 'x' }],
  ],
  [{ anyOf: [{ type: 'string' }, int], minimum: 5 }, ['x', 7], [4]],
  [
    { type: 'integer', anyOf: [{ type: 'number', minimum: 3 }, { type: 'string' }] },
    [3, 4],
    [2, 'x'],
  ],
  [{ anyOf: [int, none], oneOf: [int, { type: 'string' }] }, [1], [null, 'x']],
  [{ allOf: [{ minimum: 3 }, { maximum: 5 }, int] }, [3, 5], [2, 6]],
  [
    { allOf: [{ type: ['integer', 'null'] }, { type: ['number', 'string'] }] },
    [1],
    [null, 1.5, 'x'],
  ],
  [
    { allOf: [{ properties: { a: { minimum: 2 } } }, { properties: { a: int }, required: ['a'] }] },
    [{ a: 2 }],
    [{ a: 1 }, {}],
  ],
  [
    { allOf: [{ prefixItems: [int] }, { type: 'array', items: { maximum: 4 }, minItems: 1 }] },
    [[1], [1, 3]],
    [[5], [1, 5]],
  ],
  [{ allOf: [{ type: 'string', minLength: 2 }, { maxLength: 3 }] }, ['ab', 'abc'], ['a', 'abcd']],
  [{ allOf: [{}, {}] }, [1, 'x'], []],
  [{ $defs: { s: { type: 'string' } }, $ref: '#/$defs/s', maxLength: 3 }, ['abc'], ['abcd', 1]],
  [
    { $defs: { o: named }, $ref: '#/$defs/o', properties: { x: int }, required: ['x'] },
    [{ x: 4, k: 1 }],
    [{ k: 1 }, { x: 4 }],
  ],
  [{ type: 'integer', enum: ['red', 4] }, [4], ['red']],
  [{ enum: [1, 50, 'x'], maximum: 10 }, [1, 'x'], [50]],
  [{ enum: ['a', 'abc', 'abcdef'], minLength: 2, maxLength: 4 }, ['abc'], ['a', 'abcdef']],
  [{ enum: ['a', 'b'], const: 'b' }, ['b'], ['a']],
  [{ anyOf: [{ const: 1 }, { const: 'x' }], enum: ['x', 2] }, ['x'], [1, 2]],
  [{ anyOf: [false, int] }, [1], ['x']],
  [{ anyOf: [{ type: 'string', minLength: 3, maxLength: 2 }, int] }, [1], ['', 'abc']],
  [{ oneOf: [{ ...int, minimum: 0.2, maximum: 0.8 }, { type: 'null' }] }, [null], [0, 1]],
  [{ anyOf: [{ type: 'number', minimum: 2, maximum: 1 }, { const: 'x' }] }, ['x'], [1, 2]],
  [{ anyOf: [{ type: 'number', minimum: 1, exclusiveMaximum: 1 }, { const: 'x' }] }, ['x'], [1]],
  [{ type: ['integer', 'null'], minimum: 2, maximum: 1 }, [null], [1, 2]],
  [
    { allOf: [{ properties: { a: int }, additionalProperties: false }, { required: ['a'] }] },
    [{ a: 1 }],
    [{}, { a: 1, b: 1 }],
  ],
  [
    { allOf: [{ properties: { a: int } }], unevaluatedProperties: false },
    [{ a: 1 }, {}],
    [{ b: 1 }],
  ],
]

/** OpenAPI 3.0 allows `null` so. */
const nullable: readonly Row[] = [
  [{ ...int, nullable: true, minimum: 3 }, [3, null], [2, 'x']],
  [{ type: 'string', nullable: true, enum: [null] }, [null], ['x']],
  [{ ...int, nullable: false }, [3], [null]],
]

/** A value with restrictions but no type gets the type of the restrictions. */
const untyped: readonly Row[] = [
  [{ minimum: 5 }, [5], [4]],
  [{ exclusiveMaximum: 5 }, [4], [5]],
  [{ minLength: 2 }, ['ab'], ['a']],
  [{ pattern: '^a+$' }, ['aa'], ['b']],
  [{ format: 'date' }, ['2026-01-02'], ['x']],
  [{ minItems: 1 }, [[1]], [[]]],
  [{ minProperties: 1 }, [{ a: 1 }], [{}]],
  [{ minimum: 5, minLength: 2 }, [5, 'ab'], [4, 'a']],
]

const texts: readonly Row[] = [
  [
    { type: 'string', pattern: '^[a-z]+$', minLength: 3, maxLength: 5 },
    ['abc', 'abcde'],
    ['ab', 'abcdef', 'ABC'],
  ],
  [{ type: 'string', pattern: '^a', maxLength: 3 }, ['a', 'abc'], ['abcd', 'ba']],
  [{ type: 'string', pattern: '^a-\\d{2}$', minLength: 4, maxLength: 9 }, ['a-12'], ['a-1']],
  [{ type: 'string', pattern: 'ab', minLength: 4 }, ['xxab', 'xxabcd'], ['ab']],
  [{ type: 'string', pattern: '^[a-z]*(?:-x)?$', minLength: 3 }, ['abc', 'abc-x'], ['a']],
  [
    { type: 'string', format: 'uuid', maxLength: 36 },
    ['123e4567-e89b-42d3-a456-426614174000'],
    ['x'],
  ],
  [
    { type: 'string', format: 'email', maxLength: 40 },
    ['ada@example.org'],
    [`${'a'.repeat(30)}@example.org`],
  ],
  [
    { type: 'string', format: 'uri', maxLength: 50 },
    ['https://example.org/a'],
    [`https://example.org/${'a'.repeat(40)}`],
  ],
]

const rows = [...keywords, ...lists, ...objects, ...together, ...nullable, ...untyped, ...texts]

/** Not checked by the validator here: what grammars allow is narrower. */
const formats = Object.fromEntries(
  ['date', 'time', 'date-time', 'duration', 'email', 'uuid', 'hostname', 'ipv4', 'ipv6']
    .concat('uri', 'password')
    .map((name) => [name, true as const]),
)

const options = { formats, strict: false }
const [draft7Validators, validators] = [new Ajv(options), new Ajv2020(options)]
const validatorOf = (schema: object) =>
  ('$schema' in schema ? draft7Validators : validators).compile(schema)

describe('keywords of JSON schemas', () => {
  it.each(rows)('JSON schema: %j is enforced', (schema, allowed, refused) => {
    const accepts = acceptorOf(toJsonGrammar(schema))
    const isValid = validatorOf(schema)
    for (const value of allowed) {
      expect(accepts(JSON.stringify(value)), JSON.stringify(value)).toBe(true)
      expect(isValid(value), JSON.stringify(value)).toBe(true)
    }
    for (const value of refused)
      expect(accepts(JSON.stringify(value)), JSON.stringify(value)).toBe(false)
  })

  it.each(rows)('JSON schema: generated values fit %j', (schema) => {
    const seed = chooseSeed()
    const generate = generatorOf(toJsonGrammar(schema), createRandom(seed))
    const isValid = validatorOf(schema)
    for (let count = byRun(100, 3000); count > 0; count--) {
      const text = generate()
      expect(isValid(JSON.parse(text)), `${text}, seed ${seed}`).toBe(true)
    }
  })

  it('JSON schema: exclusive bounds of draft 4 are enforced', () => {
    const accepts = acceptorOf(
      toJsonGrammar({
        type: 'integer',
        minimum: 0,
        exclusiveMinimum: true,
        maximum: 3,
        exclusiveMaximum: false,
      }),
    )
    expect([-1, 0, 1, 3, 4].filter((value) => accepts(String(value)))).toEqual([1, 3])
  })

  it('a member that is not named never has a name of the others, also not with escapes', () => {
    const grammar = toJsonGrammar({ properties: { ab: none }, additionalProperties: int })
    expect(acceptorOf(grammar)(String.raw`{"a\u0062":1}`), String.raw`{"a\u0062":1}`).toBe(false)
    expect(acceptorOf(grammar)(String.raw`{"\u0061b":1}`), String.raw`{"\u0061b":1}`).toBe(false)
    expect(acceptorOf(grammar)(String.raw`{"ax\u0062":1}`), String.raw`{"ax\u0062":1}`).toBe(true)
    const long = 'n'.repeat(100)
    const ofLong = acceptorOf(
      toJsonGrammar({ properties: { [long]: none }, additionalProperties: int }),
    )
    expect(ofLong(JSON.stringify({ [long]: 1 })), JSON.stringify({ [long]: 1 })).toBe(false)
    expect(
      ofLong(JSON.stringify({ [long]: null, [`m${long}`]: 1 })),
      JSON.stringify({ [long]: null, [`m${long}`]: 1 }),
    ).toBe(true)
  })
})
