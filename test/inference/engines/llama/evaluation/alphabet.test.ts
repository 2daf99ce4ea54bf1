import { describe, expect, it } from 'vitest'
import { CharacterClasses } from '../../../../../src/inference/engines/llama/evaluation/alphabet.ts'

const code = (character: string): number => character.codePointAt(0) ?? 0
const areAlike = (grammar: string, one: string, other: string): boolean => {
  const classes = new CharacterClasses(grammar)
  return classes.of(code(one)) === classes.of(code(other))
}

describe('characters that a grammar does not tell apart', () => {
  it.each<[string, string, string, string, boolean]>([
    ['of a literal', 'root ::= "ab"', 'a', 'b', false],
    ['of no literal', 'root ::= "ab"', 'c', 'z', true],
    ['on both sides of one that is mentioned', 'root ::= "m"', 'a', 'z', false],
    ['inside of a range', 'root ::= [b-y]', 'c', 'x', true],
    ['inside of a range and outside of it', 'root ::= [b-y]', 'c', 'z', false],
    ['at the end of a range and after it', 'root ::= [b-y]', 'y', 'z', false],
    ['of a class that is negated', 'root ::= [^"]', '"', 'a', false],
    ['of names of rules', 'root ::= name name\nname ::= "x"', 'a', 'n', true],
    ['of a comment', 'root ::= "x" # "a"', 'a', 'b', true],
    ['of the name of a token', 'root ::= <"> "a"', 'a', 'b', false],
    ['after an escaped quotation mark', String.raw`root ::= "\"a"`, 'a', 'b', false],
    ['after an escaped bracket', String.raw`root ::= [\]a]`, 'a', 'b', false],
    ['after an escaped backslash', String.raw`root ::= "\\" "a"`, 'a', 'b', false],
    ['of two hexadecimal digits', String.raw`root ::= [\x61]`, 'a', 'b', false],
    ['of four hexadecimal digits', String.raw`root ::= "\u00E9"`, 'é', 'è', false],
    ['of eight hexadecimal digits', String.raw`root ::= "\U0001F600"`, '😀', '😁', false],
    ['of a letter that stands for another', String.raw`root ::= "\n"`, '\n', '\v', false],
    ['beyond 16 bits', 'root ::= "😀"', '😀', '😁', false],
  ])('%s', (_, grammar, one, other, expected) => {
    expect(areAlike(grammar, one, other)).toBe(expected)
  })

  it('first bytes are alike where all characters with them are', () => {
    const classes = new CharacterClasses(String.raw`root ::= [^"\x7F] "é"`)
    const [two, three] = [classes.ofFirstByte(0xc4), classes.ofFirstByte(0xe4)]
    expect(two).toBe(three)
    // Of é.
    expect(classes.ofFirstByte(0xc3)).not.toBe(two)
    expect(classes.ofFirstByte(0xc2)).not.toBe(two)
    expect(classes.ofFirstByte(0x22)).not.toBe(classes.ofFirstByte(0x23))
    expect(classes.ofFirstByte(0x23)).toBe(classes.ofFirstByte(0x24))
  })
})
