import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Vocabulary } from '../../../../src/inference/engines/llama/runtime.ts'
import { TokenText } from '../../../../src/inference/engines/llama/token-text.ts'
import { assertProperty } from '../../../property.ts'

/** Tokens are pieces of bytes. */
function vocabularyOf(pieces: readonly Buffer[]): Pick<Vocabulary, 'textOf'> {
  const bytesOf = (tokens: readonly number[]): Buffer[] =>
    tokens.map((token) => pieces[token] ?? Buffer.alloc(0))
  return { textOf: (tokens) => Buffer.concat(bytesOf(tokens)).toString('utf8') }
}

function textsOf(pieces: readonly Buffer[]): string[] {
  const text = new TokenText(vocabularyOf(pieces) as Vocabulary, [])
  return pieces.map((_, token) => text.push(token))
}

const single = (bytes: readonly number[]): Buffer[] => bytes.map((byte) => Buffer.from([byte]))

describe('text from tokens', () => {
  it('tells a character when its last byte has come', () => {
    expect(textsOf(single([...Buffer.from('a🦊b')]))).toEqual(['a', '', '', '', '🦊', 'b'])
  })

  it('tells what stands before half a character at once', () => {
    const bytes = Buffer.from('so é')
    expect(textsOf([bytes.subarray(0, -1), bytes.subarray(-1)])).toEqual(['so ', 'é'])
  })

  it('bytes that are no character do not hold the text for ever', () => {
    const told = textsOf(single([0xff, 0x80, 0xf0, 0x41]))
    expect(told.join('')).toBe('\uFFFD\uFFFD\uFFFDA')
    expect(textsOf(single(Array<number>(100).fill(0xff))).join('').length).toBeGreaterThan(60)
  })

  it('is the text, however it is cut, and half a character is never told', () => {
    const cuts = fc.array(fc.integer({ min: 1, max: 5 }), { minLength: 1 })
    assertProperty(
      fc.property(fc.string({ unit: 'grapheme' }), cuts, (text, lengths) => {
        const bytes = Buffer.from(text)
        const pieces: Buffer[] = []
        for (let at = 0, turn = 0; at < bytes.length; turn++) {
          const length = lengths[turn % lengths.length] ?? 1
          pieces.push(bytes.subarray(at, at + length))
          at += length
        }
        const told = textsOf(pieces)
        expect(told.join('')).toBe(bytes.toString('utf8'))
        if (!text.includes('\uFFFD')) expect(told.join('')).not.toContain('\uFFFD')
      }),
    )
  })
})
