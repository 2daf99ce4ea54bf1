import { Ajv2020 } from 'ajv/dist/2020.js'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { assertProperty } from '../../../../property.ts'
import {
  objectGrammar,
  toJsonGrammar,
} from '../../../../../src/inference/engines/llama/grammar/json-grammar.ts'

const rootOf = (schema: object): string => toJsonGrammar(schema).split('\n')[0] ?? ''

/** For each keyword that clients send: a schema, values that fit it, and values that do not. */
const keywords: readonly (readonly [object, readonly unknown[], readonly unknown[]])[] = [
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
  [{ prefixItems: [{ const: 1 }], minItems: 1, items: false, type: 'array' }, [[1]], [[2]]],
  [{ type: ['string', 'null'], title: 't', description: 'd', default: null }, ['a', null], [1]],
]

/** Not checked by the validator here: what grammars allow is narrower. */
const formats = Object.fromEntries(
  ['date', 'time', 'date-time', 'duration', 'email', 'uuid', 'hostname', 'ipv4', 'ipv6']
    .concat('uri', 'password')
    .map((name) => [name, true as const]),
)

describe('toJsonGrammar', () => {
  it.each([
    [{}, 'value'],
    [{ type: 'string' }, 'string'],
    [{ type: ['integer', 'null'] }, '( integer | null )'],
    [{ type: 'string', minLength: 1, maxLength: 2 }, String.raw`"\"" char{1,2} "\""`],
    [{ type: 'string', minLength: 3 }, String.raw`"\"" char{3,} "\""`],
    [{ const: 'a"b' }, String.raw`"\"a\\\"b\""`],
    [{ enum: [1, null] }, '( "1" | "null" )'],
    [{ anyOf: [{ type: 'null' }, { const: 1 }] }, '( null | "1" )'],
    [{ allOf: [{ type: 'null' }] }, 'null'],
    [{ type: 'array' }, '"[" ws ( value ( "," ws value ){0,} end )? "]"'],
    [{ type: 'array', maxItems: 0 }, '"[" ws "]"'],
    [
      { items: { type: 'null' }, minItems: 2, maxItems: 4 },
      '"[" ws null ( "," ws null ){1,3} end "]"',
    ],
    [{ prefixItems: [{ type: 'null' }, true] }, '"[" ws null "," ws value end "]"'],
    [{ prefixItems: [] }, '"[" ws "]"'],
    [{ type: 'object', additionalProperties: false }, '"{" ws  "}"'],
    [
      { properties: { a: { type: 'null' } }, required: ['a'] },
      String.raw`"{" ws "\"a\"" ":" sp null end "}"`,
    ],
  ])('translates %j', (schema, root) => {
    expect(rootOf(schema)).toBe(`root ::= ${root}`)
  })

  it('makes a rule of a definition, even of a recursive one', () => {
    const list = {
      $ref: '#/$defs/node',
      $defs: { node: { type: 'array', items: { $ref: '#/$defs/node' } } },
    }
    expect(toJsonGrammar(list).split('\n').slice(0, 2)).toEqual([
      'root ::= d0',
      'd0 ::= "[" ws ( d0 ( "," ws d0 ){0,} ws )? "]"',
    ])
  })

  const nothing = { type: 'null' }
  it.each<[object, readonly string[], readonly string[]]>([
    [
      { properties: { a: nothing, b: nothing }, required: ['b'] },
      ['{"b":null}', '{"b": null, "a":null}'],
      ['{}', '{"a":null}', '{"b":null,}', '{"b":null,"b":null}'],
    ],
    [
      { properties: { a: nothing, b: nothing, c: nothing } },
      ['{}', '{"a":null}', '{"b":null}', '{"a":null,"c":null}', '{"a":null,"b":null,"c":null}'],
      ['{"b":null,"a":null}', '{"a":null,"a":null}', '{,"b":null}', '{"d":null}'],
    ],
    [
      { properties: { a: nothing, b: nothing }, additionalProperties: { type: 'integer' } },
      ['{}', '{"x":1}', '{"a":null,"x":1,"y":2}', '{"a":null,"b":null,"x":1}'],
      ['{"x":1,"a":null}', '{"x":null}'],
    ],
    [
      { type: 'object', additionalProperties: nothing },
      ['{}', '{"x":null}', '{"x": null,"y":null}'],
      ['{"x":1}', '{"x":null,}'],
    ],
    [
      { properties: { a: nothing }, required: ['b', 'a'] },
      ['{"a":null,"b":1}', '{"a":null, "b":{"c":[]}}'],
      ['{}', '{"a":null}', '{"b":1}', '{"a":null,"b":1,"c":1}'],
    ],
    [
      { required: ['a'], additionalProperties: { type: 'integer' } },
      ['{"a":1}', '{"a":1,"b":2}'],
      ['{}', '{"b":2}', '{"a":null}', '1'],
    ],
    [
      { type: 'object', required: ['toString'] },
      ['{"toString":null}', '{"toString":1,"b":"c"}'],
      ['{}', '{"b":1}', '{"b":1,"toString":null}'],
    ],
    [
      { items: { items: { properties: { a: { enum: ['x', 1] } } } }, minItems: 1 },
      ['[[]]', '[[{"a":"x"}, {}], [{"a":1}]]'],
      ['[]', '[{}]', '[[{"a":2}]]'],
    ],
  ])('makes a grammar of %j that accepts valid values only', (schema, allowed, refused) => {
    const pattern = toPattern(toJsonGrammar(schema))
    for (const text of allowed) expect(text).toMatch(pattern)
    for (const text of refused) expect(text).not.toMatch(pattern)
  })

  it.each([
    [{ type: 'integer' }, '1'],
    [{ type: 'string' }, '"a"'],
    [{ const: null }, 'null'],
    [{ properties: { a: {} } }, '{ "a": [ 1, {} ] }'],
    [{ items: { type: 'boolean' } }, '[ true, false ]'],
  ])('allows white space inside a value of %j, none after it', (schema, text) => {
    const pattern = toPattern(toJsonGrammar(schema))
    expect(text).toMatch(pattern)
    for (const blank of [' ', '\n', '\n\t']) expect(text + blank).not.toMatch(pattern)
  })

  it.each([
    ['after a colon', '{"a":', '[1]}', [' '], ['  ', '\n', '\t']],
    ['before a comma', '{"a":[1', ',2]}', [], [' ', '\n']],
    ['after a comma', '{"a":[1,', '2]}', [' ', `\n${' '.repeat(20)}`], ['  ', '\n\n', '\t']],
    ['inside of a bracket', '{"a":[1', ']}', ['\n\t'], ['\n\n', `\n${' '.repeat(21)}`]],
    ['inside of an empty bracket', '{"a":[', ']}', ['\n  '], ['  ', '\n\n']],
    ['before the last bracket', '{"a":[1]', '}', [' ', '\n'], ['  ', '\n ', '\n\n']],
  ])('limits white space %s', (_, before, after, allowed, refused) => {
    const pattern = toPattern(toJsonGrammar({ properties: { a: { type: 'array' } } }))
    for (const blank of ['', ...allowed]) expect(before + blank + after).toMatch(pattern)
    for (const blank of refused) expect(before + blank + after).not.toMatch(pattern)
  })

  it('allows what programs write that indent JSON', () => {
    const value = { a: [1, 2], b: [], c: {}, d: 'x' }
    for (const indent of [0, 1, 2, 4, '\t']) {
      expect(JSON.stringify(value, null, indent)).toMatch(toPattern(objectGrammar))
      const schema = { type: 'object', additionalProperties: true }
      expect(JSON.stringify(value, null, indent)).toMatch(toPattern(toJsonGrammar(schema)))
    }
  })

  it('allows no white space after any object', () => {
    expect('{ "a": [ 1, "b" ] }').toMatch(toPattern(objectGrammar))
    expect('{} ').not.toMatch(toPattern(objectGrammar))
  })

  it('makes a grammar in proportion to the schema, whatever its depth and choices', () => {
    for (const [schema, levels] of [
      [bushy(12, 5), 5],
      [nested(60), 60],
      [repeating(60), 60],
    ] as const) {
      expect(toJsonGrammar(schema).length).toBeLessThan(2000 * levels)
    }
    const few = toJsonGrammar(wide(100)).length
    expect(toJsonGrammar(wide(1000)).length).toBeLessThan(12 * few)
  })

  it('refuses a schema whose grammar is too long', () => {
    expect(() => toJsonGrammar(wide(10_000))).toThrow(
      'the schema needs a grammar of more than 262144 characters',
    )
    expect(() => toJsonGrammar({ const: 'x'.repeat(300_000) })).toThrow('grammar of more than')
  })

  const two = { properties: { a: nothing, b: nothing }, required: ['a'] }
  it('accepts minProperties and maxProperties that follow from the names', () => {
    expect(rootOf({ ...two, minProperties: 1, maxProperties: 2 })).toBe(rootOf(two))
    expect(rootOf({ type: 'object', minProperties: 0 })).toBe(rootOf({ type: 'object' }))
  })

  it.each(keywords)('enforces %j', (schema, allowed, refused) => {
    const pattern = toPattern(toJsonGrammar(schema))
    const isValid = new Ajv2020({ formats }).compile(schema)
    for (const value of allowed) {
      expect(JSON.stringify(value)).toMatch(pattern)
      expect(isValid(value), JSON.stringify(value)).toBe(true)
    }
    for (const value of refused) expect(JSON.stringify(value)).not.toMatch(pattern)
  })

  it('integers between random bounds are those that the grammar accepts', () => {
    const bound = fc.integer({ min: -1200, max: 1200 })
    assertProperty(
      fc.property(bound, fc.nat(1500), bound, (min, size, value) => {
        const max = min + size
        const pattern = toPattern(toJsonGrammar({ type: 'integer', minimum: min, maximum: max }))
        for (const one of [min, max, min - 1, max + 1, value]) {
          expect(pattern.test(String(one)), `${min} ${one} ${max}`).toBe(one >= min && one <= max)
        }
      }),
    )
  })

  it('numbers between random bounds: what the grammar accepts is between them', () => {
    const number = fc.integer({ min: -3000, max: 3000 }).map((hundredths) => hundredths / 100)
    assertProperty(
      fc.property(number, fc.integer({ min: 100, max: 2000 }), number, (min, size, value) => {
        const max = Math.round(min * 100 + size) / 100
        const pattern = toPattern(toJsonGrammar({ type: 'number', minimum: min, maximum: max }))
        for (const one of [min, max, value, min - 0.01, max + 0.01, (min + max) / 2]) {
          const rounded = Math.round(one * 100) / 100
          const isBetween = rounded >= min && rounded <= max
          expect(pattern.test(String(rounded)), `${min} ${rounded} ${max}`).toBe(isBetween)
        }
      }),
    )
  })

  it.each([
    [{ not: {} }, '`not` cannot be enforced'],
    [{ allOf: [{}, {}] }, '`allOf` cannot be enforced'],
    [{ type: 'array', contains: {} }, '`contains` cannot be enforced'],
    [{ type: 'number', multipleOf: 0.5 }, '`multipleOf` cannot be enforced'],
    [{ type: 'string', pattern: '(?=a)b' }, '`(?=` in a `pattern` cannot be enforced'],
    [{ type: 'string', pattern: '(a)\\1' }, '`\\1` in a `pattern` cannot be enforced'],
    [{ type: 'string', pattern: '\\bword' }, '`\\b` in a `pattern` cannot be enforced'],
    [{ type: 'string', pattern: 'a', maxLength: 3 }, '`pattern` with `minLength` or `maxLength`'],
    [{ type: 'string', format: 'semver' }, '`format`: `semver` cannot be enforced'],
    [{ type: 'array', uniqueItems: true }, '`uniqueItems` cannot be enforced'],
    [{ type: 'integer', minimum: 2, maximum: 1 }, 'no integer is between the bounds'],
    [{ type: 'object', patternProperties: {} }, '`patternProperties` cannot be enforced'],
    [{ if: {} }, '`if` cannot be enforced'],
    [{ dependentSchemas: {} }, '`dependentSchemas` cannot be enforced'],
    [{ type: 'object', minProperties: 1 }, '`minProperties` cannot be enforced'],
    [{ minProperties: 1 }, '`minProperties` cannot be enforced'],
    [{ ...two, minProperties: 2 }, '`minProperties` cannot be enforced'],
    [{ ...two, maxProperties: 1 }, '`maxProperties` cannot be enforced'],
    [{ ...two, additionalProperties: {}, maxProperties: 2 }, '`maxProperties` cannot be enforced'],
    [{ type: 'object', maxProperties: 9 }, '`maxProperties` cannot be enforced'],
    [
      { ...two, required: ['c'], additionalProperties: false },
      '`c` is required, but not among the `properties`',
    ],
    [{ type: 'date' }, 'there is no type `date`'],
    [{ $ref: '#/$defs/gone' }, '`#/$defs/gone` is not defined in the schema'],
    [{ $ref: 'https://example.org/a' }, 'is not defined in the schema'],
    [{ enum: [] }, 'an empty choice allows nothing'],
    [{ items: false }, 'false allows nothing'],
    [nested(100), 'nested deeper than 64'],
  ])('refuses %j', (schema, message) => {
    expect(() => toJsonGrammar(schema)).toThrow(message)
  })
})

function nested(depth: number): object {
  return depth === 0 ? {} : { type: 'array', items: nested(depth - 1) }
}

/** As many optional members at each level, one of them with the next level. */
function bushy(members: number, depth: number): object {
  if (depth === 0) return { type: 'null' }
  const names = Array.from({ length: members }, (_, at) => `m${at}`)
  return wideOf(names, (at) => (at === members - 1 ? bushy(members, depth - 1) : {}))
}

/** Types that are said twice at each level. */
function repeating(depth: number): object {
  return depth === 0 ? {} : { type: ['array', 'array'], items: repeating(depth - 1) }
}

const wide = (members: number): object =>
  wideOf(
    Array.from({ length: members }, (_, at) => `m${at}`),
    () => ({}),
  )

const wideOf = (names: readonly string[], schemaOf: (at: number) => object): object => ({
  properties: Object.fromEntries(names.map((name, at) => [name, schemaOf(at)])),
})

/** The grammar as a pattern that spells out its rules, to a depth that is enough here. */
function toPattern(grammar: string): RegExp {
  const rules = new Map(
    grammar.split('\n').map((line) => {
      const at = line.indexOf(' ::= ')
      return [line.slice(0, at), line.slice(at + 5)]
    }),
  )
  const spell = (name: string, depth: number): string => {
    if (depth > 9) return '(?!)'
    const text = rules.get(name)
    if (text === undefined) throw new Error(`there is no rule ${name}`)
    const spelled = text.replaceAll(
      /"((?:\\.|[^"\\])*)"|\[(?:\\.|[^\]\\])*\]|\{\d+,?\d*\}|[a-z]\w*|\s+/g,
      (part, literal: string | undefined) => {
        if (literal !== undefined) return `(?:${toLiteral(literal)})`
        return /^[a-z]/.test(part) ? spell(part, depth + 1) : part.trim()
      },
    )
    return `(?:${spelled})`
  }
  return new RegExp(`^${spell('root', 0)}$`)
}

/** Of the escapes, a grammar and a pattern write those of line ends and backslashes alike. */
const toLiteral = (text: string): string => text.replaceAll(/[{}[\].*+?()|^$]/g, String.raw`\$&`)
