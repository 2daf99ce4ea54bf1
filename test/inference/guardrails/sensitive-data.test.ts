import { describe, expect, it } from 'vitest'
import { createGuard } from '../../../src/inference/guardrails/guard.ts'

/** The text that is left when secrets (S) and personal data (P) are redacted. */
function left(text: string): string {
  const common = { kind: 'built-in', stage: 'both', action: 'redact' } as const
  const verdict = createGuard({
    isOn: true,
    sensitivity: 0.5,
    rules: [
      { ...common, id: 'secrets' },
      { ...common, id: 'personal_data' },
    ],
    maxPromptChars: null,
    action: 'reject',
    onBlock: 'error',
  }).checkInput(text)
  const passed = verdict.action === 'pass' ? verdict.text : ''
  return passed
    .replaceAll('[redacted:secrets]', '[S]')
    .replaceAll('[redacted:personal_data]', '[P]')
}

// Put together here, so that no scanner takes this file for a leak.
const key = (start: string, length: number) => `${start}${'aB3'.repeat(length).slice(0, length)}`

describe('personal data', () => {
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
  ])('%s', (text, expected) => {
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
  ])('is not %s', (text) => {
    expect(left(text)).toBe(text)
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
  ])('%#', (text, expected) => {
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
  ])('are not in %s', (text) => {
    expect(left(text)).toBe(text)
  })
})
