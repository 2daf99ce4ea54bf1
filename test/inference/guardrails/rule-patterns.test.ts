import fc from 'fast-check'
import { Matcher as Re2Matcher, RE2Set } from 're2js'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { createMatchers } from '../../../src/inference/guardrails/guard.ts'
import { findPatternProblem } from '../../../src/inference/guardrails/rule-patterns.ts'
import type { GuardAction } from '../../../src/inference/guardrails/rules.ts'
import { runSteps } from '../../../src/runtime/turn-budget.ts'
import { assertProperty } from '../../property.ts'

const matchersOf = (patterns: readonly string[], action: GuardAction = 'redact') =>
  createMatchers(
    patterns.map((pattern, at) => {
      const common = { kind: 'pattern', stage: 'both', unless: [] } as const
      return { ...common, id: `own-${at}`, pattern, action }
    }),
  )

/** The matches of one pattern in a whole text. */
function matchesOf(pattern: string, text: string): string[] {
  const stretch = { text, begin: 0, end: text.length, isLast: true }
  const found = matchersOf([pattern]).flatMap((one) => runSteps(one.find(stretch, new Set())))
  return found.map(({ start, end }) => text.slice(start, end))
}

const inJavaScript = (pattern: string, text: string): string[] =>
  [...text.matchAll(new RegExp(pattern, 'giu'))].map(([match]) => match).filter((one) => one !== '')

describe('findPatternProblem', () => {
  it.each([
    [String.raw`(a+)\1`, String.raw`without back-references ("\1" at character 5)`],
    [String.raw`(?<a>x)\k<a>`, String.raw`without back-references ("\k<a>" at character 8)`],
    ['a(?=b)', 'without look-around ("(?=" at character 2)'],
    ['a(?!b)', 'without look-around ("(?!" at character 2)'],
    ['(?<=b)a', 'without look-around ("(?<=" at character 1)'],
    ['[(](?<!b)a', 'without look-around ("(?<!" at character 4)'],
    ['(', 'expected a regular expression (Unterminated group)'],
    ['a{2,1}', 'expected a regular expression (numbers out of order'],
    ['a{1,1001}', 'more than 1000 repetitions'],
    ['(a{1,50}){1,50}', 'those of nested groups multiplied: {1,50}'],
    ['((a{100}){100}){100}', 'more than 1000 repetitions'],
    ['a*', 'that never matches empty text'],
    ['(|a)*', 'that never matches empty text'],
    ['^|abc', 'that never matches empty text'],
    [String.raw`\b`, 'that never matches empty text'],
    ['[ab]{1,400}c', 'expected a smaller regular expression ('],
    [String.raw`\p{Letter}`, String.raw`unknown property \p{Letter}, expected one like \p{L}`],
    [String.raw`(?i)\z`, 'expected a regular expression'],
    ['x'.repeat(513), 'expected at most 512 characters'],
  ])('findPatternProblem refuses %s with a reason', (pattern, reason) => {
    expect(findPatternProblem(pattern)).toContain(reason)
  })

  it.each([
    'plain words',
    'ignore.{0,20}previous.{0,20}rules',
    String.raw`[\w.+-]+@[\w-]+(?:\.[\w-]{2,8}){1,3}`,
    String.raw`\b(?:\d{4}[ -]?){3}\d{4}\b`,
    String.raw`\+?\d{1,3}[ -]?\(?\d{2,4}\)?[ -]?\d{3,4}[ -]?\d{4}`,
    String.raw`[)(*+]{2}\(\[\]`,
    '(?:a|ab){9}',
    '(?:a?){20}a{20}',
    '.*a.*ax',
    'a{1,128}',
    `(?:${Array.from({ length: 60 }, (_, at) => `word${at}`).join('|')})`,
  ])('findPatternProblem accepts %s', (pattern) => {
    expect(findPatternProblem(pattern)).toBeUndefined()
  })
})

describe('a pattern finds what it finds in JavaScript', () => {
  it.each([
    [String.raw`a\sb`, 'a b a\u00A0b a\u2003b a\u3000b a\uFEFFb a\u200Bb'],
    [String.raw`a[\s_]b`, 'a b a\u00A0b a_b a-b'],
    [String.raw`a\Sb|a[\S]c`, 'a b axb a\u00A0b a\u200Bb axc a c'],
    [String.raw`\u0041|\u{1F600}|\uD83D\uDE02|\x42|\cJ|\0`, 'a😀😂b\nx\0'],
    [String.raw`[\u{1F600}-\u{1F602}\b]+`, '😀😁😂\b😃'],
    [String.raw`\p{Script=Greek}+|\p{sc=Han}|\p{gc=Nd}`, 'abc αβγ 漢字 12'],
    [String.raw`\P{L}+`, 'abc 12 д'],
    ['[[:alpha:]+', 'xa:[l-'],
    ['[(?<]x>', 'a<x> (x>'],
    ['a[^]b|[]', 'a\nb'],
    ['(?<word>foo)|(?<other>bar)', 'FOO bar'],
    ['(?-i:Foo)|(?s:a.b)', 'foo Foo a\nb'],
    ['straße|ſ', 'STRASSE Straße s'],
    [String.raw`\bя|x\b`, 'я яx xя x'],
    ['^a|b$', 'ab ab'],
    ['ba*', 'baab'],
    ['(a|ab)(c|bcd)', 'abcd'],
    ['a+?b??', 'aaab'],
  ])('%s', (pattern, text) => {
    expect(findPatternProblem(pattern)).toBeUndefined()
    expect(matchesOf(pattern, text)).toEqual(inJavaScript(pattern, text))
  })

  it('a pattern finds the matches of JavaScript, whatever its parts are', () => {
    const atoms = fc.constantFrom('a', 'b', '[ab]', '.', '(ab)', '(a|ab)', String.raw`\w`, '[^a]')
    const repeats = fc.constantFrom('', '', '*', '+', '?', '{2}', '{1,3}', '*?', '+?')
    const patterns = fc
      .array(fc.tuple(atoms, repeats), { minLength: 1, maxLength: 4 })
      .map((parts) => parts.map((part) => part.join('')).join(''))
    const texts = fc.string({ unit: fc.constantFrom('a', 'b', 'A', '-', '😀'), maxLength: 20 })
    assertProperty(
      fc.property(patterns, texts, (pattern, text) => {
        expect(matchesOf(pattern, text)).toEqual(inJavaScript(pattern, text))
      }),
    )
  })

  it('a pattern finds the matches of JavaScript in a long text, up to 256 characters', () => {
    const match = `<${'z'.repeat(254)}>`
    const matchers = matchersOf(['<z+>', String.raw`\bend\b`])
    for (let before = 0; before < 600; before += 7) {
      const text = `${'😀'.repeat(before)}${match} end`
      const stretch = { text, begin: 0, end: text.length, isLast: true }
      const found = matchers.flatMap((one) => runSteps(one.find(stretch, new Set())))
      expect(found.map(({ start, end }) => text.slice(start, end))).toEqual([match, 'end'])
    }
  })
})

it('a pattern that ends with the text matches only there', () => {
  const text = `foo ${'y'.repeat(3000)}x foo y`
  expect(matchesOf('foo [^x]*$', text)).toEqual(['foo y'])
  expect(matchesOf('(?m:foo$)', `foo\n${text}\nfoo`)).toEqual(['foo', 'foo'])
})

it('a rule that was reported already, or only rejects, is not searched for again', () => {
  const text = 'bomb '.repeat(1000)
  const stretch = { text, begin: 0, end: text.length, isLast: true }
  const find = (action: GuardAction, reported: readonly string[] = []) =>
    matchersOf(['bomb'], action).flatMap((one) => runSteps(one.find(stretch, new Set(reported))))
  expect(find('redact')).toHaveLength(1000)
  expect(find('reject').length).toBeLessThan(1024 / 'bomb '.length + 1)
  expect(find('flag', ['own-0'])).toEqual([])
})

describe('row 116: a pattern that makes other engines backtrack is searched in linear time', () => {
  afterEach(() => void vi.restoreAllMocks())

  /** Each call of RE2 is linear in its own text: what counts is how many and how long they are. */
  function workOf(patterns: readonly string[], text: string) {
    const tests = vi.spyOn(RE2Set.prototype, 'match')
    const searches = vi.spyOn(Re2Matcher.prototype, 'find')
    const count = (): number => tests.mock.calls.length + searches.mock.calls.length
    const stretch = { text, begin: 0, end: text.length, isLast: true }
    let perStep = 0
    for (const matcher of matchersOf(patterns)) {
      const steps = matcher.find(stretch, new Set())
      for (let isDone = false; !isDone;) {
        const before = count()
        isDone = steps.next().done === true
        perStep = Math.max(perStep, count() - before)
      }
    }
    const lengths = [
      ...tests.mock.calls.map(([input]) => input.length),
      ...searches.mock.contexts.map((matcher) => (matcher as Re2Matcher).inputLength()),
    ]
    return { count: count(), longest: Math.max(...lengths), perStep }
  }

  const corpus: readonly [pattern: string, text: string][] = [
    ['я*я*я*я*x', 'я'],
    ['(a+)+$', 'a'],
    ['(a*)*b', 'a'],
    ['(a|a)*c', 'a'],
    ['(a|aa)+$', 'a'],
    ['(?:x+x+)+y', 'x'],
    ['(.*)*,(.*)*;', 'ab'],
    ['((a{2,9})b)*c', 'aaab'],
    ['(?:a?){40}a{40}b', 'a'],
    [String.raw`\w+\w+\w+!`, 'w'],
    [String.raw`(\d+)*(\d+)*x`, '1'],
    [String.raw`^(([a-z])+.)+[A-Z]([a-z])+$`, 'a'],
    ['(?:漢|漢漢)*。', '漢'],
    ['(?:😀+)+x', '😀'],
    ['[ab]*a[ab]{12}c', 'ab'],
    // RE2 itself reads on to the end of what it is given for each of these short matches.
    ['a(?:[^b]*b)?', 'a'],
    ['x*y|x', 'x'],
  ]

  it.each(corpus)('%s', (pattern, unit) => {
    expect(findPatternProblem(pattern)).toBeUndefined()
    const chars = 8192
    const work = workOf([pattern], unit.repeat(chars / unit.length))
    expect(work.count).toBeGreaterThan(7)
    expect(work.count).toBeLessThan(chars * 1.05)
    // How far a match may reach beyond the tested characters; few calls between pauses.
    expect(work.longest).toBeLessThanOrEqual(1 + 1024 + 256)
    expect(work.perStep).toBeLessThanOrEqual(2)
  })

  it('all of the patterns together', () => {
    const patterns = corpus.map(([pattern]) => pattern)
    const work = workOf(patterns, 'я a x 漢😀'.repeat(200))
    expect(work.longest).toBeLessThanOrEqual(1 + 1024 + 256)
    expect(work.perStep).toBeLessThanOrEqual(1 + patterns.length)
  })
})
