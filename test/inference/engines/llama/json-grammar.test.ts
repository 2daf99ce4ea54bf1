import { describe, expect, it } from 'vitest'
import {
  objectGrammar,
  toJsonGrammar,
} from '../../../../src/inference/engines/llama/json-grammar.ts'

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
    [{ type: 'array' }, '"[" ws ( value ws ( "," ws value ws ){0,} )? "]"'],
    [{ type: 'array', maxItems: 0 }, '"[" ws "]"'],
    [
      { items: { type: 'null' }, minItems: 2, maxItems: 4 },
      '"[" ws null ws ( "," ws null ws ){1,3} "]"',
    ],
    [{ prefixItems: [{ type: 'null' }, true] }, '"[" ws null ws "," ws value ws "]"'],
    [{ type: 'object', additionalProperties: false }, '"{" ws  "}"'],
    [
      { properties: { a: { type: 'null' } }, required: ['a'] },
      String.raw`"{" ws "\"a\"" ":" ws null ws "}"`,
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
      'd0 ::= "[" ws ( d0 ws ( "," ws d0 ws ){0,} )? "]"',
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
    [{ properties: { a: {} } }, '{ "a": [ 1 , {} ] }'],
    [{ items: { type: 'boolean' } }, '[ true , false ]'],
  ])('allows white space inside a value of %j, none after it', (schema, text) => {
    const pattern = toPattern(toJsonGrammar(schema))
    expect(text).toMatch(pattern)
    for (const blank of [' ', '\n', '\n\t']) expect(text + blank).not.toMatch(pattern)
  })

  it('allows no white space after any object', () => {
    expect('{ "a": [ 1 , "b" ] }').toMatch(toPattern(objectGrammar))
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

  it.each([
    [{ type: 'number', minimum: 1, maximum: 2 }, 'number'],
    [{ type: 'integer', exclusiveMinimum: 1, exclusiveMaximum: 2 }, 'integer'],
    [{ type: 'string', pattern: '^a$', format: 'email' }, 'string'],
  ])('ignores what it cannot enforce in %j', (schema, root) => {
    expect(rootOf(schema)).toBe(`root ::= ${root}`)
  })

  it.each([
    [{ not: {} }, '`not` cannot be enforced'],
    [{ allOf: [{}, {}] }, '`allOf` cannot be enforced'],
    [{ type: 'array', contains: {} }, '`contains` cannot be enforced'],
    [{ type: 'number', multipleOf: 0.5 }, '`multipleOf` cannot be enforced'],
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
