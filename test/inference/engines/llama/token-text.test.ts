import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import type { Vocabulary } from '../../../../src/inference/engines/llama/runtime.ts'
import {
  spellingToBytes,
  maxSpellingLength,
  sliceText,
  findSlicing,
  StopScanner,
  TokenText,
} from '../../../../src/inference/engines/llama/token-text.ts'
import { assertProperty } from '../../../property.ts'
import { loadStorySlot } from './open-engine.ts'

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

describe('TokenText', () => {
  it('TokenText returns a character once its last byte has arrived', () => {
    expect(textsOf(single([...Buffer.from('a🦊b')]))).toEqual(['a', '', '', '', '🦊', 'b'])
  })

  it('TokenText returns the text before an incomplete character at once', () => {
    const bytes = Buffer.from('so é')
    expect(textsOf([bytes.subarray(0, -1), bytes.subarray(-1)])).toEqual(['so ', 'é'])
  })

  it('TokenText does not wait forever for bytes that are no character', () => {
    const told = textsOf(single([0xff, 0x80, 0xf0, 0x41]))
    expect(told.join('')).toBe('\uFFFD\uFFFD\uFFFDA')
    expect(textsOf(single(Array<number>(100).fill(0xff))).join('').length).toBeGreaterThan(60)
  })

  it('TokenText returns the same text however it is cut, and never half a character', () => {
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

function scan(stops: readonly string[], pieces: readonly string[]) {
  const scanner = new StopScanner(stops)
  const told = pieces.map((piece) => scanner.push(piece))
  return { told, hasStopped: scanner.hasStopped, rest: scanner.flush() }
}

describe('StopScanner', () => {
  it.each([
    [['END'], ['a E', 'N', 'D b'], ['a ', '', ''], true, ''],
    [['END'], ['a E', 'N', 'x'], ['a ', '', 'ENx'], false, ''],
    [['END'], ['a EN'], ['a '], false, 'EN'],
    [['abab'], ['aba', 'bc'], ['', ''], true, ''],
    [['b', 'abc'], ['ab', 'c'], ['a', ''], true, ''],
    [['xab', 'ab'], ['xab'], [''], true, ''],
    [[''], ['text'], ['text'], false, ''],
    [[], ['text'], ['text'], false, ''],
  ])('StopScanner looks for %j in %j', (stops, pieces, told, hasStopped, rest) => {
    expect(scan(stops, pieces)).toEqual({ told, hasStopped, rest })
  })

  it('StopScanner returns the same however the text is cut, and never a stop text', () => {
    const letters = fc.constantFrom('a', 'b', 'c')
    const word = (maxLength: number) => fc.string({ unit: letters, minLength: 1, maxLength })
    assertProperty(
      fc.property(fc.array(word(4), { maxLength: 3 }), fc.array(word(5)), (stops, pieces) => {
        const whole = scan(stops, Array.from(pieces.join('')))
        const inPieces = scan(stops, pieces)
        const text = inPieces.told.join('') + inPieces.rest
        expect(text).toBe(whole.told.join('') + whole.rest)
        expect(inPieces.hasStopped).toBe(stops.some((stop) => pieces.join('').includes(stop)))
        expect(stops.filter((stop) => text.includes(stop))).toEqual([])
      }),
    )
  })
})

it.each([
  ['llama', '<0xE2>', [0xe2]],
  ['llama', '<0x0a>', [10]],
  ['llama', '\u2581\uFFFD', [32, 0xef, 0xbf, 0xbd]],
  ['gpt2', '\u00e2\u0122', [0xe2, 0x80]],
  ['gpt2', '\u0120\u00f0\u0141', [32, 0xf0, 0x9f]],
  ['gpt2', '\u010a\u0143', [10, 0xad]],
  // Control tokens are spelled as they are, which no byte is.
  ['gpt2', '<|\uFFFD|>', null],
  ['rwkv', '\u00e2', null],
])(
  'bytesOfSpelling: in the vocabulary %s, the token %j has the bytes %j',
  (tokenizer, spelling, bytes) => {
    expect(spellingToBytes(tokenizer, spelling)).toEqual(bytes)
  },
)

it.each([
  ['gpt2', ['a', '\u0120\u00f0\u0141', '<|end|>'], 7],
  ['llama', ['\u2581\u2581', '<0x0a>'], 6],
  ['llama', [], 1],
  // It may take many blanks for one.
  ['t5', ['abc'], Infinity],
])('maxSpellingLength: in the vocabulary %s with %j, it is %d', (tokenizer, spellings, longest) => {
  expect(maxSpellingLength(tokenizer, spellings)).toBe(longest)
})

describe('a long text is tokenised in slices', () => {
  it('a long text in slices has the tokens of the whole', async () => {
    const { vocabulary } = await loadStorySlot({ batchSize: 16, contextLength: 64 })
    const parts = [
      'Once upon',
      ' a',
      ' time,',
      '\n\n',
      '  two',
      ' 3.14 x',
      'é',
      ' 😀',
      '\t',
      '"Hi"',
      'x',
    ]
    const random = (at: number): number => (at * 7919 + (at >> 3) * 104_729) % parts.length
    const text = Array.from({ length: 20_000 }, (_, at) => parts[random(at)] ?? '').join('')
    const slices = [...sliceText(text, vocabulary.slicing)]
    expect(slices.length).toBeGreaterThan(5)
    const tokensOf = (one: string): number[] =>
      vocabulary.tokenize(one, { special: false, inner: false })
    expect(slices.flatMap(tokensOf)).toEqual(tokensOf(text))
  })

  it('a long text is not cut where a token has both sides of a space', () => {
    const byLetter = (text: string): number[] => Array.from(text, (letter) => letter.charCodeAt(0))
    expect(findSlicing(['a', ' b'], byLetter)).toBe('with space')
    expect(findSlicing(['a', 'a b'], byLetter)).toBeNull()
    expect([...sliceText('a b '.repeat(9000), null)]).toHaveLength(1)
  })
})
