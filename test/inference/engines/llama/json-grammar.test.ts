import { describe, expect, it } from 'vitest'
import { toJsonGrammar } from '../../../../src/inference/engines/llama/json-grammar.ts'

/** A member that is null. */
const member = (name: string): string => String.raw`"\"${name}\"" ":" ws null`
const rootOf = (schema: object): string => toJsonGrammar(schema).split('\n')[0] ?? ''

describe('a JSON schema as a grammar', () => {
  it.each([
    [{}, 'value'],
    [{ type: 'string' }, 'string'],
    [{ type: ['integer', 'null'] }, '( integer | null )'],
    [{ type: 'string', minLength: 1, maxLength: 2 }, String.raw`"\"" char{1,2} "\"" ws`],
    [{ type: 'string', minLength: 3 }, String.raw`"\"" char{3,} "\"" ws`],
    [{ const: 'a"b' }, String.raw`"\"a\\\"b\"" ws`],
    [{ enum: [1, null] }, '( "1" ws | "null" ws )'],
    [{ anyOf: [{ type: 'null' }, { const: 1 }] }, '( null | "1" ws )'],
    [{ allOf: [{ type: 'null' }] }, 'null'],
    [{ type: 'array' }, '"[" ws ( value ( "," ws value ){0,} )? "]" ws'],
    [{ type: 'array', maxItems: 0 }, '"[" ws "]" ws'],
    [
      { items: { type: 'null' }, minItems: 2, maxItems: 4 },
      '"[" ws null ( "," ws null ){1,3} "]" ws',
    ],
    [{ prefixItems: [{ type: 'null' }, true] }, '"[" ws null "," ws value "]" ws'],
    [{ type: 'object', additionalProperties: false }, '"{" ws  "}" ws'],
    [
      { properties: { a: { type: 'null' }, b: { type: 'null' } }, required: ['b'] },
      String.raw`"{" ws "\"b\"" ":" ws null ( "," ws "\"a\"" ":" ws null )? "}" ws`,
    ],
    [
      { properties: { a: { type: 'null' }, b: { type: 'null' } } },
      `"{" ws ( ${member('a')} ( "," ws ${member('b')} )? | ${member('b')} )? "}" ws`,
    ],
    [
      { type: 'object', additionalProperties: { type: 'null' } },
      '"{" ws ( string ":" ws null ( "," ws string ":" ws null )* )? "}" ws',
    ],
  ])('%j', (schema, root) => {
    expect(rootOf(schema)).toBe(`root ::= ${root}`)
  })

  it('a definition becomes a rule, also one that refers to itself', () => {
    const list = {
      $ref: '#/$defs/node',
      $defs: { node: { type: 'array', items: { $ref: '#/$defs/node' } } },
    }
    expect(toJsonGrammar(list).split('\n').slice(0, 2)).toEqual([
      'root ::= d0',
      'd0 ::= "[" ws ( d0 ( "," ws d0 ){0,} )? "]" ws',
    ])
  })

  it.each([
    [{ not: {} }, '`not` cannot be enforced'],
    [{ allOf: [{}, {}] }, '`allOf` cannot be enforced'],
    [{ type: 'date' }, 'there is no type `date`'],
    [{ $ref: '#/$defs/gone' }, '`#/$defs/gone` is not defined in the schema'],
    [{ $ref: 'https://example.org/a' }, 'is not defined in the schema'],
    [{ enum: [] }, 'an empty choice allows nothing'],
    [{ items: false }, 'false allows nothing'],
    [nested(100), 'nested deeper than 64'],
  ])('%j is refused', (schema, message) => {
    expect(() => toJsonGrammar(schema)).toThrow(message)
  })
})

function nested(depth: number): object {
  return depth === 0 ? {} : { type: 'array', items: nested(depth - 1) }
}
