import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { compilePattern, findDanger } from '../../../src/inference/guardrails/own-pattern.ts'
import { assertProperty } from '../../property.ts'

describe('an own pattern', () => {
  it.each([
    ['(a+)+', 'a repetition of what repeats or varies itself'],
    ['(a*)*b', 'a repetition of what repeats or varies itself'],
    ['(?:x+x+)+y', 'a repetition of what repeats or varies itself'],
    ['(a|a)*', 'a repetition of what repeats or varies itself'],
    ['(?:a|ab){9}', 'a repetition of what repeats or varies itself'],
    ['(?:a?){20}', 'a repetition of what repeats or varies itself'],
    ['((a{2,9})b)*', 'a repetition of what repeats or varies itself'],
    ['.*a.*ax', 'too many ways'],
    [String.raw`\w+\w+x`, 'too many ways'],
    ['a*(?:b|a*)a*c', 'too many ways'],
    ['a*(?:b|a)a*(?:b|a)x', 'too many ways'],
    ['a*(?:b)?a*(?:b)?x', 'too many ways'],
    [String.raw`a*\Ba*\Bx`, 'too many ways'],
    [String.raw`[a-z]*[a-c]*\d`, 'too many ways'],
    ['a*(?:b{0,9})?a*x', 'too many ways'],
    ['a?b?a?b?a?b?a?b?a?b?a?b?a?b?a?b?a?b?a?b?x', 'too many ways'],
    ['(?:.*)(?:.*)x', 'too many ways'],
    [String.raw`(\w)\1`, 'a reference to what a group matched'],
    [String.raw`(?<a>x)\k<a>`, 'a reference to what a group matched'],
    ['a{1,500}', 'repeats more than 128 times'],
    ['(', 'expected a regular expression'],
    ['a{2,1}', 'expected a regular expression'],
    ['x'.repeat(513), 'expected at most 512 characters'],
  ])('%s is refused', (source, reason) => {
    expect(findDanger(source)).toContain(reason)
  })

  it.each([
    'plain words',
    'a.*b',
    'ignore.{0,20}previous.{0,20}rules',
    String.raw`\w+@\w+\.\w+`,
    String.raw`[\w.+-]+@[\w-]+(?:\.[\w-]{2,8}){1,3}`,
    String.raw`\b(?:\d{4}[ -]?){3}\d{4}\b`,
    String.raw`\d{1,3}(?:\.\d{1,3}){3}`,
    String.raw`\+?\d{1,3}[ -]?\(?\d{2,4}\)?[ -]?\d{3,4}[ -]?\d{4}`,
    '(?:[a-f0-9]{2}:){5,}',
    String.raw`\d+(?: |-)\w+`,
    '(?:cat|dog){1,3}s?',
    String.raw`(?<=id: )[A-Z]{2}\d{6}(?!\d)`,
    String.raw`[)(*+]{2}\(\[\]`,
    String.raw`\p{Lu}\u{1F600}\x41\u0042`,
  ])('%s may run', (source) => {
    expect(findDanger(source)).toBeUndefined()
  })

  it.each([
    ['a*', '', 'a{0,64}'],
    ['a+?b', '', 'a{1,64}?b'],
    ['a{3}b{2,}c{2,5}d?', '', 'a{3,3}b{2,64}c{2,5}d?'],
    [String.raw`[*+]\*x`, '', String.raw`[*+]\*x`],
    ['(?:ab)+', '', '(?:ab){1,64}'],
  ])('%s is bounded', (source, _, bounded) => {
    expect(compilePattern(source).source).toBe(bounded)
  })

  it('matches what it would match without bounds, up to them', () => {
    const atoms = fc.constantFrom('a', 'b', '[ab]', '.', '(?:ab)', String.raw`\w`)
    const repeats = fc.constantFrom('', '', '*', '+', '?', '{2}', '{1,3}', '*?')
    const patterns = fc
      .array(fc.tuple(atoms, repeats), { minLength: 1, maxLength: 4 })
      .map((parts) => parts.map((part) => part.join('')).join(''))
      .filter((source) => findDanger(source) === undefined)
    assertProperty(
      fc.property(
        patterns,
        fc.string({ unit: fc.constantFrom('a', 'b', 'A', '-'), maxLength: 20 }),
        (source, text) => {
          const plain = [...text.matchAll(new RegExp(source, 'giu'))].map(([match]) => match)
          const bounded = [...text.matchAll(compilePattern(source))].map(([match]) => match)
          expect(bounded).toEqual(plain)
        },
      ),
    )
  })
})
