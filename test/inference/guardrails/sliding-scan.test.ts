import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createMatchers } from '../../../src/inference/guardrails/guard.ts'
import type { GuardAction, GuardHit, Matcher } from '../../../src/inference/guardrails/rules.ts'
import { SlidingScan } from '../../../src/inference/guardrails/sliding-scan.ts'
import { assertProperty } from '../../property.ts'

const common = { stage: 'output', unless: [] } as const
const pattern = (source: string, action: GuardAction, id: string = action): Matcher[] =>
  createMatchers([{ kind: 'pattern', id, pattern: source, action, ...common }])
const builtIn = (id: 'secrets' | 'personal_data'): Matcher[] =>
  createMatchers([{ kind: 'built-in', id, stage: 'output', action: 'redact' }])

interface Outcome {
  readonly text: string
  readonly isBlocked: boolean
  readonly hits: readonly GuardHit[]
}

/** The output for a text in these pieces. */
function scan(matchers: readonly Matcher[], pieces: readonly string[], step = 64): Outcome {
  const guard = new SlidingScan(matchers, step)
  const releases = [...pieces.map((piece) => guard.push(piece)), guard.finish()]
  return {
    text: releases.map(({ text }) => text).join(''),
    isBlocked: releases.at(-1)?.isBlocked ?? false,
    hits: releases.flatMap(({ hits }) => hits),
  }
}

/** A text cut at any places. */
function cutAt(text: string, cuts: readonly number[]): string[] {
  const places = [0, ...cuts.map((cut) => cut % (text.length + 1)), text.length]
  const inOrder = places.toSorted((a, b) => a - b)
  return inOrder.slice(1).map((end, at) => text.slice(inOrder[at], end))
}

const email = ' bob@example.com '
const key = ` hf_${'aB3'.repeat(20)} `
const block = `-----BEGIN PRIVATE KEY-----\n${'abc+/\n'.repeat(80)}-----END PRIVATE KEY-----`
const words = fc.constantFrom(
  'word ',
  'x',
  ' ',
  '\n',
  'BOMB',
  'bo',
  'mb',
  email,
  key,
  block,
  '😀',
  '@',
)
const texts = fc
  .array(
    fc.oneof(
      words,
      fc.nat(200).map((count) => 'filler '.repeat(count)),
    ),
    { maxLength: 30 },
  )
  .map((parts) => parts.join(''))
const cuts = fc.array(fc.nat(20_000), { maxLength: 40 })

describe('SlidingScan: however a text is cut into pieces', () => {
  const sets: Readonly<Record<string, readonly Matcher[]>> = {
    redacting: [...builtIn('secrets'), ...builtIn('personal_data'), ...pattern('bomb', 'redact')],
    rejecting: [...builtIn('personal_data'), ...pattern('bomb', 'reject')],
    flagging: [...pattern('bomb', 'flag'), ...pattern('x[^x]{1,60}x', 'redact')],
  }

  it.each(Object.entries(sets))('the releases are the same: %s', (_, matchers) => {
    assertProperty(
      fc.property(texts, cuts, (text, places) => {
        const whole = scan(matchers, [text])
        expect(scan(matchers, cutAt(text, places))).toEqual(whole)
        expect(scan(matchers, Array.from(text)).text).toBe(whole.text)
      }),
      { numRuns: 50, longRuns: 150 },
    )
  })

  it('no match is released, and all the rest is', () => {
    assertProperty(
      fc.property(texts, cuts, (text, places) => {
        const { text: shown } = scan(sets['redacting'] ?? [], cutAt(text, places))
        expect(shown).not.toMatch(/bomb|BEGIN|aB3|abc\+/i)
        expect(shown).not.toContain(email.trim())
      }),
      { numRuns: 50, longRuns: 150 },
    )
    assertProperty(
      fc.property(texts, cuts, (text, places) => {
        expect(scan(pattern('§', 'redact'), cutAt(text, places)).text).toBe(text)
      }),
    )
  })

  it('no release ends inside a character', () => {
    for (const shift of [0, 1]) {
      const guard = new SlidingScan(pattern('§', 'redact'), 64)
      const pieces = ['x'.repeat(shift), ...Array.from({ length: 400 }, () => '😀')]
      const releases = pieces.map((piece) => guard.push(piece).text)
      expect(releases.filter((release) => release !== '').length).toBeGreaterThan(5)
      expect(releases.every((release) => release.isWellFormed())).toBe(true)
      expect(releases.join('') + guard.finish().text).toBe(pieces.join(''))
    }
  })

  it('words and exceptions are found that began in an earlier step', () => {
    const matchers = createMatchers([
      {
        kind: 'keywords',
        id: 'own',
        keywords: ['bomb'],
        unless: ['bath bomb'],
        stage: 'output',
        action: 'redact',
      },
    ])
    for (const text of ['photobomb', 'bath bomb']) {
      const before = 'y'.repeat(63 - (text.length - 'bomb'.length))
      const whole = `${before} ${text} and a bomb`
      expect(scan(matchers, [whole]).text).toBe(`${before} ${text} and a [redacted:own]`)
    }
  })
})

describe('SlidingScan: a stream', () => {
  it('SlidingScan: a stream is released as it grows, a few characters behind', () => {
    const guard = new SlidingScan(pattern('bomb', 'redact'), 64)
    let shown = 0
    for (let sent = 10; sent <= 2000; sent += 10) {
      shown += guard.push('0123456789').text.length
      expect(sent - shown).toBeLessThan(64 + 256)
    }
    expect(shown + guard.finish().text.length).toBe(2000)
  })

  it('SlidingScan: a stream ends before a match that rejects, and stays ended', () => {
    const guard = new SlidingScan(pattern('bomb', 'reject'), 64)
    const filler = 'a'.repeat(400)
    guard.push(`fine bo`)
    const told = guard.push(`mb ${filler}`)
    expect(told).toEqual({
      text: 'fine ',
      isBlocked: true,
      hits: [{ rule: 'reject', action: 'reject' }],
    })
    expect(guard.push(filler)).toEqual({ text: '', isBlocked: true, hits: [] })
    expect(guard.finish()).toEqual({ text: '', isBlocked: true, hits: [] })
  })

  it('SlidingScan: a stream reports each rule once', () => {
    const { hits } = scan(pattern('bomb', 'flag'), ['bomb bomb ', 'word '.repeat(200), 'bomb'])
    expect(hits).toEqual([{ rule: 'flag', action: 'flag' }])
  })

  it('SlidingScan: a stream has overlapping matches redacted as one', () => {
    const matchers = [...pattern('abc', 'redact', 'one'), ...pattern('cde', 'redact', 'two')]
    expect(scan(matchers, ['xabcdex'])).toMatchObject({
      text: 'x[redacted:one]x',
      hits: [
        { rule: 'one', action: 'redact' },
        { rule: 'two', action: 'redact' },
      ],
    })
  })

  it('SlidingScan: a stream has a match redacted that is longer than a view', () => {
    const run = 'z'.repeat(5000)
    expect(
      scan(pattern('z+', 'redact'), [`a ${run} b`]).text.replaceAll(
        /(?:\[redacted:redact\])+/g,
        '#',
      ),
    ).toBe('a # b')
  })

  it('SlidingScan: a stream is rejected by a match inside a redacted one', () => {
    const matchers = [...pattern('a.{0,50}b', 'redact'), ...pattern('evil', 'reject')]
    expect(scan(matchers, ['x a evil b y'])).toMatchObject({
      text: 'x [redacted:redact]',
      isBlocked: true,
    })
  })
})
