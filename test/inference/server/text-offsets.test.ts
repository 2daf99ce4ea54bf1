import { describe, expect, it } from 'vitest'
import { computeOffsets } from '../../../src/inference/server/surfaces/completions.ts'

const toToken = (one: string | readonly number[]) =>
  typeof one === 'string' ? { token: one } : { token: '\uFFFD', bytes: one }

describe('offsets of tokens', () => {
  it.each([
    ['words', 'Once upon', ['Once', ' upon'], [0, 4]],
    ['characters above U+FFFF', 'a😀b', ['a', '😀', 'b'], [0, 1, 2]],
    ['a first token with a blank that the text has not', 'Once up', [' Once', ' up'], [0, 4]],
    ['a token without text', 'Once', ['', 'Once', '!'], [0, 0, 4]],
    ['special tokens', 'a b', ['a', '<s>', ' b', '</s>'], [0, 1, 1, 3]],
    ['the bytes of a character', 'x€y', ['x', [0xe2], [0x82], [0xac], 'y'], [0, 1, 1, 1, 2]],
    ['a token that ends in a character', '日本', [[0xe6, 0x97], [0xa5], '本'], [0, 0, 1]],
    ['a character that was cut off', '3', ['3', [0xe2], [0x82]], [0, 1, 1]],
    ['bytes that are no character', '\uFFFD\uFFFDa', [[0xe6], [0xe6], 'a'], [0, 1, 2]],
    ['a token that a stop text has cut', 'ab', ['a', 'bc', 'd'], [0, 1, 1]],
  ] as const)('offsets of tokens are right for %s', (_, text, tokens, offsets) => {
    expect(computeOffsets(text, tokens.map(toToken), 0)).toEqual(offsets)
    const moved = offsets.map((offset) => offset + 7)
    expect(computeOffsets(text, tokens.map(toToken), 7)).toEqual(moved)
  })
})
