import { describe, expect, it } from 'vitest'
import { startGrammar } from '../start-grammar.ts'

/** `whole`: the text may end there; `part`: it may go on; `no`: it is refused. */
function resultOf(grammar: string, text: string): 'whole' | 'part' | 'no' {
  let next = startGrammar(grammar)
  for (const character of text) next = next?.after(character.codePointAt(0) ?? 0) ?? null
  if (next === null) return 'no'
  return next.isComplete ? 'whole' : 'part'
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

  it.each([
    ['tokens, which are no characters', 'root ::= <[5]> | "a"'],
    ['too many ways to read the same text', `root ::= ${'"a"? '.repeat(6000)}`],
    ['what llama.cpp refuses', 'root ::= root "a"'],
  ])('is not followed: %s', (_, grammar) => {
    expect(startGrammar(grammar)).toBeNull()
  })
})
