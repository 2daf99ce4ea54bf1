import { expect, it } from 'vitest'
import {
  bytesOfSpelling,
  longestSpelling,
} from '../../../../src/inference/engines/llama/token-bytes.ts'

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
])('of the vocabulary %s, the token %j has the bytes %j', (tokenizer, spelling, bytes) => {
  expect(bytesOfSpelling(tokenizer, spelling)).toEqual(bytes)
})

it.each([
  ['gpt2', ['a', '\u0120\u00f0\u0141', '<|end|>'], 7],
  ['llama', ['\u2581\u2581', '<0x0a>'], 6],
  ['llama', [], 1],
  // It may take many blanks for one.
  ['t5', ['abc'], Infinity],
])('of the vocabulary %s with %j, no token is longer than %d', (tokenizer, spellings, longest) => {
  expect(longestSpelling(tokenizer, spellings)).toBe(longest)
})
