import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createMatchers } from '../../../src/inference/guardrails/guard.ts'
import type { Match } from '../../../src/inference/guardrails/rules.ts'
import { runSteps } from '../../../src/runtime/turn-budget.ts'
import { assertProperty } from '../../property.ts'

/** As one expression that tries one phrase after the other, the longest first. */
function plainPhrases(list: readonly string[]): RegExp {
  const byLength = list.toSorted((a, b) => b.length - a.length)
  // Invisible characters of a phrase do not count.
  const shown = byLength.map((phrase) => phrase.replaceAll(hidden, '').trim())
  const sources = shown.filter((phrase) => phrase !== '').map(toSource)
  return new RegExp(sources.join('|') || '(?!)', 'giu')
}

const hidden = /[\u00AD\u200B-\u200D\u2060\uFEFF]/g
const invisible = String.raw`[\u00AD\u200B-\u200D\u2060\uFEFF]{0,2}`
const unspaced = /[\p{sc=Han}\p{sc=Hiragana}\p{sc=Katakana}\p{sc=Thai}\p{sc=Lao}\p{sc=Khmer}]/u

function toSource(phrase: string): string {
  const letters = Array.from(phrase.replaceAll(/\s+/g, ' '))
  const body = letters.map((one) =>
    one === ' ' ? String.raw`\s{1,4}` : one.replace(/[\\^$.*+?()[\]{}|/]/, String.raw`\$&`),
  )
  const before = unspaced.test(letters[0] ?? '') ? '' : String.raw`(?<![\p{L}\p{N}_])`
  const after = unspaced.test(letters.at(-1) ?? '') ? '' : String.raw`(?![\p{L}\p{N}_])`
  return `${before}${body.join(invisible)}${after}`
}

type Span = readonly [start: number, end: number]

function plainFind(list: readonly string[], view: string, begin: number, end: number): Span[] {
  if (list.length === 0) return []
  const found = Array.from(view.matchAll(startingAt(plainPhrases(list), begin)))
  return found
    .map(({ index, 0: { length } }): Span => [index, index + length])
    .filter(([start]) => start < end)
}

function startingAt(pattern: RegExp, begin: number): RegExp {
  pattern.lastIndex = begin
  return pattern
}

const spansOf = (found: readonly Match[]): Span[] => found.map(({ start, end }) => [start, end])

const keywordMatcher = (keywords: readonly string[], unless: readonly string[] = []) => {
  const rule = { id: 'own', keywords, unless, stage: 'both', action: 'flag' } as const
  const [matcher] = createMatchers([{ kind: 'keywords', ...rule }])
  return (text: string, begin = 0, end = text.length): Span[] => {
    const steps = matcher?.find({ text, begin, end, isLast: true }, new Set())
    return spansOf(steps === undefined ? [] : runSteps(steps))
  }
}

/** Few letters, so that phrases meet: cases, look-alikes, blanks and the unseen. */
const letters = [
  'a',
  'A',
  'b',
  'B',
  's',
  'S',
  'k',
  'K',
  'i',
  'I',
  'ſ',
  'K',
  'ß',
  'ẞ',
  'İ',
  'ı',
  'σ',
  'ς',
  'Σ',
  '\u0345',
  'ι',
]
const few = ['a', 'A', 'b', 'B', '炸']
const others = ['炸', '弹', 'か', '😀', '𐐀', '𐐨', '+', '(', '_', '1', '\uD83D', '\uDE00']
const gaps = [' ', ' ', '\n', '\u00A0', '\u200B', '\u00AD', '\uFEFF', '     ']
const textOf = (signs: readonly string[], maxLength: number) =>
  fc.array(fc.constantFrom(...signs), { maxLength }).map((all) => all.join(''))
const phrase = (signs: readonly string[]) => textOf(signs, 5).filter((one) => one.trim() !== '')
const plainPhrase = phrase([...letters, ...others, ' ', ' '])
const anyPhrase = fc.oneof({ weight: 9, arbitrary: plainPhrase }, phrase(['a', '炸', ...gaps]))
const phraseLists = fc.oneof(
  fc.array(plainPhrase, { minLength: 1, maxLength: 12 }),
  fc.array(phrase([...few, ' ']), { minLength: 1, maxLength: 12 }),
  fc.array(anyPhrase, { minLength: 1, maxLength: 5 }),
)
const views = fc.oneof(textOf([...letters, ...others, ...gaps], 40), textOf([...few, ...gaps], 40))

describe('createMatchers: keywords', () => {
  it('createMatchers: keywords are found where one regular expression of all finds them', () => {
    assertProperty(
      fc.property(phraseLists, views, fc.nat(40), fc.nat(40), (list, view, from, to) => {
        const begin = Math.min(from, view.length)
        // A step begins between characters.
        fc.pre(!/^[\uDC00-\uDFFF]/.test(view.slice(begin)))
        expect(keywordMatcher(list)(view, begin, to)).toEqual(plainFind(list, view, begin, to))
      }),
      { numRuns: 50, longRuns: 120 },
    )
  })

  it('createMatchers: keywords are not found where an exception overlaps them', () => {
    assertProperty(
      fc.property(phraseLists, phraseLists, views, (list, unless, view) => {
        const excused = plainFind(unless, view, 0, view.length)
        const expected = plainFind(list, view, 0, view.length).filter(([start, end]) =>
          excused.every((other) => other[1] <= start || other[0] >= end),
        )
        expect(keywordMatcher(list, unless)(view)).toEqual(expected)
      }),
      { numRuns: 50 },
    )
  })

  it('createMatchers: keywords may be as many and as long as the configuration allows', () => {
    const many = Array.from({ length: 1000 }, (_, at) => `${at} `.padEnd(128, 'so long '))
    const find = keywordMatcher(many)
    expect(find(`x ${many[517]?.trim().toUpperCase()}.`)).toEqual([[2, 2 + 128]])
    expect(find(`x ${many[517]?.trim()}er`)).toEqual([])
  })
})

it.each([
  ['foo[^a]+', true],
  [String.raw`\bfoo\b`, true],
  ['(?:a|b)(?<name>c)', true],
  [String.raw`\^foo[$^]`, true],
  ['^foo', false],
  ['foo$', false],
])('createMatchers: the pattern %s depends on its own text alone: %s', (pattern, isLocal) => {
  const rule = { kind: 'pattern', id: 'own', pattern, stage: 'both', action: 'flag' } as const
  expect(createMatchers([{ ...rule, unless: [] }])[0]?.isLocal).toBe(isLocal)
  expect(createMatchers([{ ...rule, unless: ['bar'] }])[0]?.isLocal).toBe(false)
})
