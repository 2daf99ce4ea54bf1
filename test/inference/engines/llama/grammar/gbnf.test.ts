import { describe, expect, it } from 'vitest'
import {
  type GrammarStart,
  GrammarCache,
  type NextCharacters,
} from '../../../../../src/inference/engines/llama/grammar/next-characters.ts'
import { startGrammar } from '../start-grammar.ts'

/** `whole`: the text may end there; `part`: it may continue; `no`: it is refused. */
function resultOf(grammar: string, text: string): 'whole' | 'part' | 'no' {
  const { next: first, steps } = startGrammar(grammar)
  let next: NextCharacters | null = first
  for (const character of text) next = next?.after(character.codePointAt(0) ?? 0, steps) ?? null
  if (next === null) return 'no'
  return next.isComplete ? 'whole' : 'part'
}

/** Token by token, each a character. */
function follow(start: GrammarStart, text: Iterable<string>): NextCharacters {
  let { next } = start
  for (const character of text) {
    const after = next.after(character.codePointAt(0) ?? 0, start.steps)
    if (after === null) throw new Error('the grammar does not allow the character')
    next = after.afterChoice(start.steps)
  }
  return next
}

describe('a grammar in GBNF', () => {
  it.each<[string, string, readonly string[], readonly string[], readonly string[]]>([
    ['a literal', 'root ::= "ab"', ['ab'], ['', 'a'], ['b', 'abc']],
    ['an empty literal', 'root ::= "" "a"', ['a'], [''], ['b']],
    ['alternatives', 'root ::= "a" | "bc" |', ['', 'a', 'bc'], ['b'], ['c', 'ab']],
    ['alternatives on several lines', 'root ::= "a" |\n  "b"\n', ['a', 'b'], [''], ['ab']],
    ['a group on several lines', 'root ::= (\n "a" # one\n | "b"\n)', ['a', 'b'], [''], ['ab']],
    ['rules', 'root ::= x x\nx ::= "1" | "2"', ['12', '21'], ['', '1'], ['3', '123']],
    ['a rule with a hyphen', 'root ::= a-b\na-b ::= "x"', ['x'], [''], ['a']],
    ['recursion', 'root ::= "(" root ")" | "x"', ['x', '((x))'], ['((', '((x)'], ['()', '(x))']],
    ['recursion at the end', 'root ::= "a" root | "b"', ['b', 'aaab'], ['aa'], ['ba']],
    ['a class', 'root ::= [a-cx]', ['a', 'b', 'c', 'x'], [''], ['d', 'aa']],
    ['a negated class', 'root ::= [^a-c]', ['d', 'é', '😀'], [''], ['a', 'b']],
    ['a hyphen at the end of a class', 'root ::= [a-]', ['a', '-'], [''], ['b']],
    ['any character', 'root ::= .', ['a', '\n', '😀'], [''], ['ab']],
    ['none or more', 'root ::= "ab"*', ['', 'ab', 'abab'], ['a', 'aba'], ['b', 'aa']],
    ['one or more', 'root ::= [ab]+', ['a', 'abba'], [''], ['c', 'ac']],
    ['none or one', 'root ::= "a"? "b"', ['b', 'ab'], ['', 'a'], ['aa']],
    ['so many', 'root ::= "ab"{2}', ['abab'], ['', 'ab', 'aba'], ['ababa']],
    ['at least so many', 'root ::= "a"{2,}', ['aa', 'aaaaa'], ['', 'a'], ['ab']],
    ['so many to so many', 'root ::= ( "a" | "b" ){1,2}', ['a', 'ba'], [''], ['aba']],
    ['what may be empty, repeated', 'root ::= ( "a"? )* "b"', ['b', 'aab'], ['aa'], ['c']],
    ['repeated twice', 'root ::= "a"?*', ['', 'aa'], [], ['b']],
    ['escapes', String.raw`root ::= "\"\\\n\t\r\[\]"`, ['"\\\n\t\r[]'], ['"'], ['x']],
    ['an escaped bracket in a class', String.raw`root ::= [\]\\]`, [']', '\\'], [''], ['[']],
    ['codes', String.raw`root ::= "\x41\u00E9\U0001F600"`, ['Aé😀'], ['A', 'Aé'], ['a']],
    ['comments', '# "x"\nroot ::= "a" # "b"\n', ['a'], [''], ['x', 'ab']],
  ])('%s', (_, grammar, whole, part, refused) => {
    expect(whole.filter((text) => resultOf(grammar, text) !== 'whole')).toEqual([])
    expect(part.filter((text) => resultOf(grammar, text) !== 'part')).toEqual([])
    expect(refused.filter((text) => resultOf(grammar, text) !== 'no')).toEqual([])
  })
})

describe('an answer with many ways to read it', () => {
  // llama.cpp took up to half a minute for a character of each, and all requests waited.
  it.each([
    ['lists of lists', 'root ::= ([a-z ]{1,30}){1,20}'],
    ['from both sides', 'root ::= [a-z ] root [a-z ] | [a-z ]?'],
    ['optional parts', `root ::= (${'[a-z ]? '.repeat(50)})*`],
    ['lists in a row', `root ::= ${'[a-z ]* '.repeat(100)}"!"?`],
    ['equal choices', `root ::= (${'[a-z ] | '.repeat(500)}"b")*`],
    ['choices that end late', `root ::= ${'[a-z ]+ "!" | '.repeat(300)} [a-z ]*`],
  ])('an ambiguous answer is followed where equal readings meet again: %s', (_, grammar) => {
    expect(
      follow(startGrammar(grammar), 'once upon a time there was a girl '.repeat(4)).isComplete,
    ).toBe(true)
  })

  it.each([
    ['from the beginning', 'root ::= "a" root "b" | "a" root "c" | "d"'],
    ['deep inside', 'root ::= "aaaaaaaa" x\nx ::= "a" x "b" | "a" x "c" | "d"'],
    ['from both sides of two', 'root ::= "a" root root "b" | "a" root "c" | "a"'],
  ])(
    'an ambiguous answer is refused where its readings double with each character: %s',
    (_, grammar) => {
      expect(() => follow(startGrammar(grammar), 'a'.repeat(100))).toThrow(
        'too many ways to read the same text',
      )
    },
  )

  it('an ambiguous answer is followed where its state grows with each character', () => {
    const grammar = `root ::= "a" root "b" | ${'"c" root "d" | '.repeat(3)} "x"`
    expect(follow(startGrammar(grammar), 'a'.repeat(40_000)).isComplete).toBe(false)
  })
})

describe('answers by the same grammar', () => {
  const begin = (grammar: string): (() => GrammarStart) => {
    const grammars = new GrammarCache()
    return () => grammars.open(grammar).begin()
  }

  it('answers by the same grammar share computed steps', () => {
    const start = begin('root ::= [a-z]+ ("," [a-z]+)*')
    const first = follow(start(), 'ab,c')
    expect(follow(start(), 'ab,c')).toBe(first)
  })

  it('answers by the same grammar have steps of their own', () => {
    const start = begin('root ::= deep | "x"*\ndeep ::= "a" deep "b" | "a" deep "c" | "d"')
    expect(() => follow(start(), 'a'.repeat(100))).toThrow('too many ways')
    expect(follow(start(), 'x'.repeat(100)).isComplete).toBe(true)
  })

  it('answers by the same grammar continue when the shared steps have become too many', () => {
    const start = begin('root ::= "a" root "b" | "x"')
    const waiting = start()
    const middle = follow(waiting, 'aaax')
    const deep = 'a'.repeat(12_000)
    for (let answers = 0; answers < 3; answers++) {
      expect(follow(start(), `${deep}x${'b'.repeat(12_000)}`).isComplete).toBe(true)
    }
    const renewed = middle.afterChoice(waiting.steps)
    expect(renewed).not.toBe(middle)
    expect(follow({ ...waiting, next: renewed }, 'bb').isComplete).toBe(false)
    expect(follow({ ...waiting, next: renewed }, 'bbb').isComplete).toBe(true)
  })

  it('answers by the same grammar share steps of the last grammars only', () => {
    const grammars = new GrammarCache()
    const [first = '', ...others] = Array.from('abcdefghi', (letter) => `root ::= "${letter}"`)
    const opened = grammars.open(first)
    for (const other of others.slice(1)) grammars.open(other)
    expect(grammars.open(first)).toBe(opened)
    for (const other of others) grammars.open(other)
    expect(grammars.open(first)).not.toBe(opened)
  })
})
