import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { runSteps } from '../../../src/runtime/turn-budget.ts'
import { createGuard } from '../../../src/inference/guardrails/guard.ts'
import { personalDataPatterns } from '../../../src/inference/guardrails/sensitive-data.ts'
import { assertProperty } from '../../property.ts'

/** The text that is left when secrets (S) and personal data (P) are redacted. */
function left(text: string): string {
  const common = { kind: 'built-in', stage: 'both', action: 'redact' } as const
  const guard = createGuard({
    isOn: true,
    sensitivity: 0.5,
    rules: [
      { ...common, id: 'secrets' },
      { ...common, id: 'personal_data' },
    ],
    maxPromptChars: null,
    action: 'reject',
    onBlock: 'error',
  })
  const verdict = runSteps(guard.checkInput(text))
  const passed = verdict.action === 'pass' ? verdict.text : ''
  return passed
    .replaceAll('[redacted:secrets]', '[S]')
    .replaceAll('[redacted:personal_data]', '[P]')
}

// Put together here, so that no scanner takes this file for a leak.
const key = (start: string, length: number) => `${start}${'aB3'.repeat(length).slice(0, length)}`

describe('personal_data', () => {
  it.each([
    ['bob@example.com', '[P]'],
    ['<first.last+tag@mail.example.co.uk>', '<[P]>'],
    ['Mail bob@example.com.', 'Mail [P].'],
    ['4111 1111 1111 1111', '[P]'],
    ['4111-1111-1111-1111!', '[P]!'],
    ['visa 4111111111111111, 12', 'visa [P], 12'],
    ['12 4111 1111 1111 1111 12', '12 [P] 12'],
    ['378282246310005', '[P]'],
    ['5555555555554444', '[P]'],
    ['6011111111111117', '[P]'],
    ['30569309025904', '[P]'],
    ['GB82 WEST 1234 5698 7654 32', '[P]'],
    ['DE89370400440532013000 PAID', '[P] PAID'],
    ['NO93 8601 1117 947.', '[P].'],
  ])('personal_data is redacted in %s', (text, expected) => {
    expect(left(text)).toBe(expected)
  })

  it.each([
    '4111 1111 1111 1112',
    '1234 5678 9012 3456',
    'order 0000000000000000',
    '41111111111111111111111',
    'GB82 WEST 1234 5698 7654 33',
    'ZZ82 WEST 1234 5698 7654 32',
    'GB82WEST12345698765432X',
    'a@b',
    'user@localhost',
    '@handle and me@',
    'npm install @types/node@24.1.0',
    'pi is 3.14159265358979323846',
    'call 555 0100 at 2026-11-15 05:30',
  ])('personal_data does not match %s', (text) => {
    expect(left(text)).toBe(text)
  })
})

describe('personal_data: a checksum', () => {
  const [, card, iban] = personalDataPatterns
  const cards: readonly (readonly [RegExp, readonly number[]])[] = [
    [/^4/, [19, 16, 13]],
    [/^(?:5[1-5]|2[2-7])/, [16]],
    [/^3[47]/, [15]],
    [/^3(?:0[0-5]|[68])/, [14]],
    [/^(?:6011|64[4-9]|65|62|35)/, [19, 16]],
  ]
  const luhn = (digits: string): number =>
    Array.from(digits, Number)
      .toReversed()
      .map((digit, at) => (at % 2 === 0 ? digit : digit < 5 ? digit * 2 : digit * 2 - 9))
      .reduce((sum, one) => sum + one, 0)

  /** As it is written down: by the digits, then where they end. */
  function plainLength(text: string): number {
    const digits = text.replaceAll(/\D/g, '')
    const lengths = cards.find(([start]) => start.test(digits))?.[1] ?? []
    const ends = [...text.matchAll(/\d/g)].map(({ index }) => index + 1)
    const fits = (length: number): boolean =>
      digits.length >= length &&
      luhn(digits.slice(0, length)) % 10 === 0 &&
      !/\d/.test(text.charAt(ends[length - 1] ?? 0))
    return ends[(lengths.find(fits) ?? 0) - 1] ?? 0
  }

  const starts = [
    '4',
    '51',
    '56',
    '27',
    '28',
    '34',
    '300',
    '306',
    '36',
    '6011',
    '6012',
    '644',
    '62',
  ]
  const digit = fc.nat(9).map(String)
  const numbers = fc
    .tuple(
      fc.constantFrom(...starts, '62', '35', '65', '643', '1'),
      fc.array(fc.tuple(fc.constantFrom('', '', '', ' ', '-'), digit), { maxLength: 18 }),
    )
    .map(([start, rest]) => start + rest.flat().join(''))

  it('personal_data: the checksum of a card number equals the plain Luhn sum', () => {
    assertProperty(
      fc.property(numbers, (text) => {
        const [match] = /^\d(?:[ -]?\d){12,18}/.exec(text) ?? []
        fc.pre(match !== undefined)
        for (const last of '0123456789') {
          const changed = `${match?.slice(0, -1)}${last}`
          expect(card?.matchLength?.(changed)).toBe(plainLength(changed))
        }
      }),
      { numRuns: 200, longRuns: 2000 },
    )
  })

  it('personal_data: the checksum of an IBAN equals its remainder by 97', () => {
    const letter = fc.constantFrom('A', 'B', 'Z', '0', '1', '8', '9')
    const spaced = fc.tuple(fc.constantFrom('', '', ' '), letter).map((pair) => pair.join(''))
    const letters = fc.array(spaced, { minLength: 11, maxLength: 30, size: 'max' })
    assertProperty(
      fc.property(fc.constantFrom('GB', 'NO', 'DE', 'MT', 'ZZ'), letters, (country, rest) => {
        const lengthOf: Record<string, number> = { GB: 22, NO: 15, DE: 22, MT: 31 }
        for (let check = 0; check < 100; check++) {
          const text = `${country}${String(check).padStart(2, '0')}${rest.join('')}`
          const length = lengthOf[country] ?? Infinity
          const ends = [...text.matchAll(/\S/g)].map(({ index }) => index + 1)
          const end = ends[length - 1] ?? 0
          const compact = text.replaceAll(' ', '').slice(0, length)
          const moved = `${compact.slice(4)}${compact.slice(0, 4)}`
          const number = moved.replaceAll(/[A-Z]/g, (one) => String(one.charCodeAt(0) - 55))
          const isRight = BigInt(number) % 97n === 1n && !/\w/.test(text.charAt(end))
          expect(iban?.matchLength?.(text)).toBe(isRight ? end : 0)
        }
      }),
      { numRuns: 100, longRuns: 300 },
    )
  })
})

describe('secrets', () => {
  it.each([
    [key('hf_', 34), '[S]'],
    [`export T="${key('ghp_', 36)}"`, 'export T="[S]"'],
    [`${key('sk-proj-', 120)}.`, '[S].'],
    [`${key('sk-', 2000)} end`, '[S] end'],
    [`${key('AKIA', 0)}${'AB12'.repeat(4)},`, '[S],'],
    [`${key('xoxb-', 40)}\n`, '[S]\n'],
    [`Bearer ${key('eyJ', 30)}.${key('eyJ', 900)}.${key('', 43)} x`, 'Bearer [S] x'],
    ['-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\nx', '[S]\nx'],
    [
      `-----BEGIN RSA PRIVATE KEY-----\n${'x'.repeat(9000)}\n-----END RSA PRIVATE KEY-----.`,
      '[S].',
    ],
    ['a -----BEGIN OPENSSH PRIVATE KEY-----\nnever ends', 'a [S]'],
  ])('secrets are redacted, case %#', (text, expected) => {
    expect(left(text)).toBe(expected)
  })

  it.each([
    'risk-averse-investors-and-other-people',
    'sk-short',
    'hf_transfer',
    'the task-based-approach-to-everything-there-is',
    '-----BEGIN CERTIFICATE-----\nMIIE\n-----END CERTIFICATE-----',
    '-----BEGIN PUBLIC KEY-----',
    'eyJ is how base64 of JSON begins',
  ])('secrets do not match %s', (text) => {
    expect(left(text)).toBe(text)
  })
})
