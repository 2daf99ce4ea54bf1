import { describe, expect, it } from 'vitest'
import {
  quoteLiteral,
  textChoice,
} from '../../../../../src/inference/engines/llama/grammar/string-grammar.ts'
import { readGrammar } from '../../../../../src/inference/engines/llama/grammar/grammar-check.ts'
import { toGrammar } from '../../../../../src/inference/engines/llama/grammar/output-grammar.ts'
import { acceptorOf } from './grammar-text.ts'

const regex = (pattern: string): string => toGrammar({ kind: 'regex', pattern })
const schema = (value: object): string => toGrammar({ kind: 'json_schema', schema: value })
const manyTimes = (count: number, text: (at: number) => string): string[] =>
  Array.from({ length: count }, (_, at) => text(at))
const withOptional = (count: number): object => ({
  type: 'object',
  properties: Object.fromEntries(manyTimes(count, (at) => `p${at}`).map((name) => [name, {}])),
})

describe('a grammar whose evaluation would not end is refused:', () => {
  it.each<[what: string, grammar: string, message: string | RegExp]>([
    ['at most less than at least', 'root ::= "a"{5,1}', /`\{5,1\}` has the larger number first/],
    ['brackets', `root ::= ${'('.repeat(9000)}"a"${')'.repeat(9000)}`, /nested deeper than 500/],
    ['left recursion', 'root ::= root "a" | "a"', 'the grammar is left-recursive'],
    [
      'a rule that may be itself',
      schema({ anyOf: [{ $ref: '#' }, { type: 'null' }] }),
      'the grammar is left-recursive',
    ],
    [
      'left recursion behind what may be empty',
      'root ::= blanks root "x" | "a"\nblanks ::= " "*',
      'the grammar is left-recursive',
    ],
    [
      'long texts, repeated',
      `root ::= ${`"${'a'.repeat(500)}"{1999} `.repeat(9)}`,
      /too many parts/,
    ],
    ['repetitions of repetitions', 'root ::= ("a"{1,1000}){1,1000}', /2000 times or more/],
  ])('%s', (_, grammar, message) => {
    expect(() => readGrammar(grammar)).toThrow(message)
  })

  it.each<[what: string, grammar: string, message: string | RegExp]>([
    ['half of a surrogate pair', 'root ::= "\\uD800"', '`\\uD800` is no character, in line 1'],
    ['the same as it is', 'root ::= "\uD800"', 'the grammar has half of a surrogate pair'],
    ['a number beyond Unicode', 'root ::= "a" |\n [\\UFFFFFFFF]', /is no character, in line 2/],
    ['a range from behind', 'root ::= [z-a]', /ends before it begins/],
    ['a character of number 0', 'root ::= "a\0"', /character of number 0/],
    ['a group', 'root ::= (', 'a group of the grammar has no end; it begins in line 1, column 10'],
    ['another letter in a group', 'root ::= ( "a" ; )', /expected `\)`, in line 1, column 16/],
    ['a literal', 'root ::= a\na ::= "b', /literal of the grammar has no end; .* line 2, column 7/],
    ['a class', 'root ::= [a-z', /class of the grammar has no end; .* line 1, column 10/],
    ['an underscore', 'root ::= "a"\na_b ::= "c"', /expected a name of letters.* line 2, column 2/],
    ['Lark', 'start: "a"', /expected `::=`, in line 1, column 6; this looks like Lark, but GBNF/],
    ['Lark with an alias', '// words\n?start: WORD\nWORD: /a+/', /Lark, but GBNF is expected/],
    ['not Lark', 'root = "a"', /expected `::=`, in line 1, column 6$/],
    ['no root', 'a ::= "a"', 'the grammar has no rule `root`'],
    ['no rule', 'root ::= a', 'the grammar has no rule `a`'],
    ['nothing to repeat', 'root ::= *', /expected something to repeat/],
  ])('a grammar that llama.cpp reads wrongly is refused: %s', (_, grammar, message) => {
    expect(() => readGrammar(grammar)).toThrow(message)
  })
})

describe('a regular expression is refused with the place in it:', () => {
  const long = `${'a'.repeat(100)}(?=b)${'c'.repeat(100)}`
  it.each<[pattern: string, message: string, isInvalid: boolean]>([
    ['a(b', '`(` is not closed, at character 2 of `a(b`', true],
    ['a[b', '`[` is not closed, at character 2 of `a[b`', true],
    ['a)b', '`)` has no `(` before it, at character 2 of `a)b`', true],
    ['a**', '`*` has nothing before it to repeat, at character 3 of `a**`', true],
    ['a\\', 'nothing follows the last `\\`, at character 2 of `a\\`', true],
    ['é[z-a]', 'the range `z-a` ends before it begins, at character 3 of `é[z-a]`', true],
    ['a{3,1}', '`{3,1}` has the larger number first, at character 2 of `a{3,1}`', true],
    ['[a-', '`[` is not closed, at character 1 of `[a-`', true],
    ['a$)', '`)` has no `(` before it, at character 3 of `a$)`', true],
    ['a$b', '`$` in a regular expression cannot be enforced, at character 2 of `a$b`', false],
    ['a\uD800', 'half of a surrogate pair is no character, at character 2', true],
    ['a(?!b)', '`(?!` in a regular expression cannot be enforced, at character 2', false],
    ['a\\pL', '`\\p` in a regular expression cannot be enforced, at character 2', false],
    ['a{300}', '`{300}`: a regular expression may repeat up to 256 times, at character 2', false],
    [long, `cannot be enforced, at character 101 of \`…${long.slice(70, 130)}…\``, false],
  ])('%s', (pattern, message, isInvalid) => {
    const fault = expect.objectContaining({ message: expect.stringContaining(message), isInvalid })
    expect(() => regex(pattern)).toThrow(fault as Error)
  })
})

it.each([
  ['a set after a hyphen', '[+-\\d]'],
  ['a set before a hyphen', '[\\d-x]'],
  ['sets on both sides', '[\\d-\\s]'],
  ['a range of escapes', '[\\x41-\\u0043]'],
  ['a hyphen at the end', '[a\\d-]'],
])(
  'a class of a regular expression has the letters that it has in JavaScript: %s',
  (_, pattern) => {
    const isAccepted = acceptorOf(regex(pattern))
    const letters = manyTimes(127, (at) => String.fromCodePoint(at))
    const matches = new RegExp(`^${pattern}$`)
    const inJavaScript = letters.filter((letter) => matches.test(letter))
    // The forms of white space that models write are enough.
    const isLeftOut = (letter: string): boolean => /[\f\v]/.test(letter)
    expect(letters.filter(isAccepted)).toEqual(inJavaScript.filter((letter) => !isLeftOut(letter)))
  },
)

describe('a grammar with many ways to read a text is read:', () => {
  it.each<[what: string, grammar: string]>([
    ['any object', toGrammar({ kind: 'json_object' })],
    ['words', regex('(\\w+\\s?)*')],
    ['an address', regex('\\w+([-+.]\\w+)*@\\w+([-.]\\w+)*\\.\\w+([-.]\\w+)*')],
    ['a list of lists', regex('([a-z ]*)*')],
    ['200 optional members', schema(withOptional(200))],
    ['10,000 values', schema({ enum: manyTimes(10_000, (at) => `v${at}`) })],
    ['more items than it counts', schema({ type: 'array', maxItems: 1e12 })],
    ['a long text', schema({ type: 'string', maxLength: 1500 })],
    ['optional parts in a row', regex('(a?){250}'.repeat(10))],
    ['equal choices, repeated', regex(`(${'a|'.repeat(500)}b)*`)],
    ['lists in a row', `root ::= ${'[a-z ]* '.repeat(200)}"!"`],
    ['1,000 optional members', schema(withOptional(1000))],
    [
      'choices that double with each rule',
      [
        'root ::= a0',
        ...manyTimes(40, (at) => `a${at} ::= a${at + 1} | a${at + 1}`),
        'a40 ::= "a"',
      ].join('\n'),
    ],
    ['recursion', schema({ properties: { a: { $ref: '#' } }, required: ['a'] })],
    ['lines, comments and tokens', 'root ::= # here\n  ( "a" |\n "b" )+ <[5]> !<[6]>? .{0,2}\n\n'],
  ])('%s', (_, grammar) => {
    expect(() => readGrammar(grammar)).not.toThrow()
  })
})

it('many texts are written by what they have in common, and each of them is accepted', () => {
  const texts = ['', 'a', 'ab"\\', 'ab', '\n', '😀', '😃', ...manyTimes(300, (at) => `v${at}`)]
  const grammar = `root ::= ${textChoice(texts)}`
  readGrammar(grammar)
  expect(grammar.length).toBeLessThan(texts.map(quoteLiteral).join(' | ').length)
  const isAccepted = acceptorOf(grammar)
  expect(texts.filter((text) => !isAccepted(text))).toEqual([])
  expect(['v', 'v300', 'abc', 'b', 'v1v1'].filter(isAccepted)).toEqual([])
})
