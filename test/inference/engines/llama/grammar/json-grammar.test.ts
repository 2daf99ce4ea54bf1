import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { assertProperty } from '../../../../property.ts'
import {
  objectGrammar,
  toJsonGrammar,
} from '../../../../../src/inference/engines/llama/grammar/json-grammar.ts'
import { acceptorOf } from './grammar-text.ts'

const rootOf = (schema: object): string => toJsonGrammar(schema).split('\n')[0] ?? ''

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
  ])('toJsonGrammar translates %j', (schema, root) => {
    expect(rootOf(schema)).toBe(`root ::= ${root}`)
  })

  it('toJsonGrammar makes a rule of a definition, even of a recursive one', () => {
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
  ])(
    'toJsonGrammar makes a grammar of %j that accepts valid values only',
    (schema, allowed, refused) => {
      const accepts = acceptorOf(toJsonGrammar(schema))
      for (const text of allowed) expect(accepts(text), text).toBe(true)
      for (const text of refused) expect(accepts(text), text).toBe(false)
    },
  )

  it.each([
    [{ type: 'integer' }, '1'],
    [{ type: 'string' }, '"a"'],
    [{ const: null }, 'null'],
    [{ properties: { a: {} } }, '{ "a": [ 1, {} ] }'],
    [{ items: { type: 'boolean' } }, '[ true, false ]'],
  ])('toJsonGrammar allows white space inside a value of %j, none after it', (schema, text) => {
    const accepts = acceptorOf(toJsonGrammar(schema))
    expect(accepts(text), text).toBe(true)
    for (const blank of [' ', '\n', '\n\t']) expect(accepts(text + blank), text + blank).toBe(false)
  })

  it.each([
    ['after a colon', '{"a":', '[1]}', [' '], ['  ', '\n', '\t']],
    ['before a comma', '{"a":[1', ',2]}', [], [' ', '\n']],
    ['after a comma', '{"a":[1,', '2]}', [' ', `\n${' '.repeat(20)}`], ['  ', '\n\n', '\t']],
    ['inside of a bracket', '{"a":[1', ']}', ['\n\t'], ['\n\n', `\n${' '.repeat(21)}`]],
    ['inside of an empty bracket', '{"a":[', ']}', ['\n  '], ['  ', '\n\n']],
    ['before the last bracket', '{"a":[1]', '}', [' ', '\n'], ['  ', '\n ', '\n\n']],
  ])('toJsonGrammar limits white space %s', (_, before, after, allowed, refused) => {
    const accepts = acceptorOf(toJsonGrammar({ properties: { a: { type: 'array' } } }))
    for (const blank of ['', ...allowed])
      expect(accepts(before + blank + after), before + blank + after).toBe(true)
    for (const blank of refused)
      expect(accepts(before + blank + after), before + blank + after).toBe(false)
  })

  it('toJsonGrammar allows the white space of programs that indent JSON', () => {
    const value = { a: [1, 2], b: [], c: {}, d: 'x' }
    for (const indent of [0, 1, 2, 4, '\t']) {
      expect(
        acceptorOf(objectGrammar)(JSON.stringify(value, null, indent)),
        JSON.stringify(value, null, indent),
      ).toBe(true)
      const schema = { type: 'object', additionalProperties: true }
      expect(
        acceptorOf(toJsonGrammar(schema))(JSON.stringify(value, null, indent)),
        JSON.stringify(value, null, indent),
      ).toBe(true)
    }
  })

  it('toJsonGrammar allows no white space after any object', () => {
    expect(acceptorOf(objectGrammar)('{ "a": [ 1, "b" ] }'), '{ "a": [ 1, "b" ] }').toBe(true)
    expect(acceptorOf(objectGrammar)('{} '), '{} ').toBe(false)
  })

  it('toJsonGrammar makes a grammar in proportion to the schema, at any depth and choices', () => {
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

  it('toJsonGrammar refuses a schema whose grammar is too long', () => {
    expect(() => toJsonGrammar(wide(4500))).toThrow(
      'the schema needs a grammar of more than 262144 characters',
    )
    expect(() => toJsonGrammar({ const: 'x'.repeat(300_000) })).toThrow('grammar of more than')
  })

  const two = { properties: { a: nothing, b: nothing }, required: ['a'] }
  it('toJsonGrammar accepts minProperties and maxProperties that follow from the names', () => {
    expect(rootOf({ ...two, minProperties: 1, maxProperties: 2 })).toBe(rootOf(two))
    expect(rootOf({ type: 'object', minProperties: 0 })).toBe(rootOf({ type: 'object' }))
  })

  it('integers between random bounds are those that the grammar accepts', () => {
    const bound = fc.integer({ min: -1200, max: 1200 })
    assertProperty(
      fc.property(bound, fc.nat(1500), bound, (min, size, value) => {
        const max = min + size
        const accepts = acceptorOf(toJsonGrammar({ type: 'integer', minimum: min, maximum: max }))
        for (const one of [min, max, min - 1, max + 1, value]) {
          expect(accepts(String(one)), `${min} ${one} ${max}`).toBe(one >= min && one <= max)
        }
      }),
    )
  })

  it('numbers between random bounds: what the grammar accepts is between them', () => {
    const number = fc.integer({ min: -3000, max: 3000 }).map((hundredths) => hundredths / 100)
    assertProperty(
      fc.property(number, fc.integer({ min: 100, max: 2000 }), number, (min, size, value) => {
        const max = Math.round(min * 100 + size) / 100
        const accepts = acceptorOf(toJsonGrammar({ type: 'number', minimum: min, maximum: max }))
        for (const one of [min, max, value, min - 0.01, max + 0.01, (min + max) / 2]) {
          const rounded = Math.round(one * 100) / 100
          const isBetween = rounded >= min && rounded <= max
          expect(accepts(String(rounded)), `${min} ${rounded} ${max}`).toBe(isBetween)
        }
      }),
    )
  })

  it.each([
    [{ not: {} }, '`not` cannot be enforced, at `#`'],
    [{ type: 'array', contains: {} }, '`contains` cannot be enforced'],
    [{ type: 'number', multipleOf: 0.5 }, '`multipleOf` cannot be enforced'],
    [
      { type: 'string', pattern: '(?=a)b' },
      '`(?=` in a regular expression cannot be enforced, at character 1 of `(?=a)b`, at `#`',
    ],
    [
      { type: 'string', pattern: '(a)\\1' },
      '`\\1` in a regular expression cannot be enforced, at character 4',
    ],
    [{ type: 'string', pattern: '\\bword' }, '`\\b` in a regular expression cannot be enforced'],
    [{ type: 'string', pattern: 'a', maxLength: 3 }, '`pattern` with `minLength` or `maxLength`'],
    [{ type: 'string', format: 'semver' }, '`format`: `semver` cannot be enforced'],
    [{ type: 'array', uniqueItems: true }, '`uniqueItems` cannot be enforced'],
    [{ type: 'integer', minimum: 2, maximum: 1 }, 'no integer is between the bounds'],
    [{ type: 'object', patternProperties: {} }, '`patternProperties` cannot be enforced'],
    [{ if: {} }, '`if` cannot be enforced'],
    [{ type: 'object', minProperties: 2 }, '`minProperties` cannot be enforced'],
    [{ ...two, minProperties: 2 }, '`minProperties` cannot be enforced'],
    [{ ...two, maxProperties: 1 }, '`maxProperties` cannot be enforced'],
    [{ ...two, additionalProperties: {}, maxProperties: 2 }, '`maxProperties` cannot be enforced'],
    [
      { ...two, required: ['c'], additionalProperties: false },
      '`c` is required, but not among the `properties`',
    ],
    [{ type: 'date' }, 'there is no type `date`, at `#`'],
    [{ $ref: '#/$defs/gone' }, '`#/$defs/gone` is not defined in the schema'],
    [{ $ref: 'https://example.org/a' }, 'is not defined in the schema'],
    [{ $ref: '#' }, '`#` is defined by itself alone, at `#`'],
    [
      { properties: { a: { $ref: '#/properties/a' } } },
      '`#/properties/a` is defined by itself alone, at `#/properties/a`',
    ],
    [{ enum: [] }, 'an empty choice allows nothing'],
    [{ properties: { a: false }, required: ['a'] }, 'false allows nothing, at `#/properties/a`'],
    [nested(100), 'nested deeper than 64'],
  ])('toJsonGrammar refuses %j', (schema, message) => {
    expect(() => toJsonGrammar(schema)).toThrow(message)
  })

  const int = { type: 'integer' }
  it.each([
    ['then', { then: {} }],
    ['else', { else: {} }],
    ['contains', { type: 'array', contains: int }],
    ['minContains', { type: 'array', minContains: 1 }],
    ['maxContains', { type: 'array', maxContains: 1 }],
    ['$dynamicRef', { $dynamicRef: '#x' }],
    ['$recursiveRef', { $recursiveRef: '#' }],
    ['multipleOf', { allOf: [{ multipleOf: 5 }], type: 'integer' }],
  ])('toJsonGrammar refuses %s', (key, schema) => {
    const message = `\`${key}\` cannot be enforced, at \`#/properties/a`
    expect(() => toJsonGrammar({ properties: { a: schema } })).toThrow(message)
  })

  it.each([
    [
      { properties: { a: { enum: ['x'], pattern: 'x' } } },
      '`pattern` beside `enum` cannot be enforced, at `#/properties/a`',
    ],
    [{ enum: [{}], properties: {} }, '`properties` beside `enum` cannot be enforced'],
    [
      { allOf: [{ pattern: 'a' }, { pattern: 'b' }] },
      '`allOf` of several `pattern` cannot be enforced',
    ],
    [
      { properties: { a: int }, propertyNames: { pattern: 'a' } },
      '`propertyNames` beside `properties`',
    ],
    [
      { items: { $ref: '#/$defs/a' }, $defs: { a: { not: {} } } },
      '`not` cannot be enforced, at `#/$defs/a`',
    ],
    [
      { anyOf: [int, { properties: { a: { if: {} } } }] },
      '`if` cannot be enforced, at `#/anyOf/1/properties/a`',
    ],
    [{ allOf: [int, { type: 'string' }] }, 'no value fits all of the schema'],
    [{ type: 'string', enum: [1] }, 'no value fits all of the schema'],
    [{ enum: [1], const: 2 }, 'an empty choice allows nothing'],
    [{ prefixItems: [int], uniqueItems: true }, '`uniqueItems` beside `prefixItems`'],
    [
      { prefixItems: [int], items: false, minItems: 2 },
      '`minItems` is more than the `items` allow',
    ],
    [{ type: 'array', minItems: 3, maxItems: 2 }, 'no list has both lengths'],
    [{ type: 'string', minLength: 3, maxLength: 2 }, 'no text has both lengths'],
    [{ minimum: '5' }, '`minimum` must be a number'],
    [{ required: 'a' }, '`required` must be a list of names'],
    [{ properties: [] }, '`properties` must be an object'],
    [{ anyOf: {} }, '`anyOf` must be a list'],
    [{ minLength: -1 }, '`minLength` must be a count'],
    [{ items: 5 }, '`items` must be a schema'],
    [{ allOf: [{ $ref: '#' }] }, '`$ref` and `allOf` are nested too deep'],
    [
      {
        allOf: Array.from({ length: 7 }, (_, at) => ({
          anyOf: [{ minimum: at }, { maximum: at }],
        })),
      },
      'more than 64 choices',
    ],
  ])('toJsonGrammar refuses %j', (schema, message) => {
    expect(() => toJsonGrammar(schema)).toThrow(message)
  })

  it.each([
    ['values', { enum: Array.from({ length: 40_000 }, (_, at) => at) }],
    ['choices', { anyOf: Array.from({ length: 6000 }, (_, at) => ({ const: at })) }],
  ])('toJsonGrammar refuses schemas of too many %s before it has looked at all', (_, schema) => {
    expect(() => toJsonGrammar(schema)).toThrow('the schema has too many parts')
  })

  it('toJsonGrammar refuses schemas that become too large when they are combined', () => {
    const level = (depth: number): object =>
      depth === 0
        ? int
        : {
            properties: { a: level(depth - 1) },
            anyOf: ['a', 'b', 'c', 'd'].map((name) => ({ required: [name] })),
          }
    expect(() => toJsonGrammar(level(20))).toThrow(/too many parts|grammar of more than/)
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
