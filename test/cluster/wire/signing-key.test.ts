import { createHmac, randomBytes } from 'node:crypto'
import { expect, test } from 'vitest'
import { SigningKey } from '../../../src/cluster/wire/envelope.ts'

test('a signature is the HMAC of subject, version and content, as Node computes it', () => {
  for (const size of [0, 1, 55, 64, 1000, 70_000, 200, 300_000, 3]) {
    const secret = randomBytes(32)
    const content = randomBytes(size)
    const key = new SigningKey(secret)
    for (const subject of ['tutti1.agent.abc', 'a'.repeat(200)]) {
      const expected = createHmac('sha256', secret)
        .update(`${subject}\0\u{3}`, 'latin1')
        .update(content)
        .digest('hex')
      expect(key.sign(subject, 3, content).toString('hex')).toBe(expected)
    }
  }
})

test('a key that would have to be hashed first is refused', () => {
  expect(() => new SigningKey(randomBytes(65))).toThrow(RangeError)
  const longest = randomBytes(64)
  const expected = createHmac('sha256', longest).update('s\0\u{1}', 'latin1').digest('hex')
  const signed = new SigningKey(longest).sign('s', 1, new Uint8Array())
  expect(signed.toString('hex')).toBe(expected)
})
