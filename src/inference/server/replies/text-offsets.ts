/** Computes the offsets of tokens in a text. Pure. */

import { isUtf8 } from 'node:buffer'

/** A token of a text. `bytes` is given if `token` is not the exact text of the token. */
interface TextToken {
  readonly token: string
  readonly bytes?: readonly number[]
}

const space = 0x20
const replacementBytes = Buffer.from('\uFFFD')

/** Offsets count code points. Tokens that are parts of one character have the same offset. */
export function computeOffsets(
  text: string,
  tokens: readonly TextToken[],
  start: number,
): number[] {
  const bytes = Buffer.from(text)
  let at = 0
  let characters = start
  return tokens.map(({ token, bytes: given }) => {
    const offset = isContinuationByte(bytes[at]) ? characters - 1 : characters
    const end = at + findTokenLength(bytes, at, Buffer.from(given ?? token))
    for (; at < end; at++) if (!isContinuationByte(bytes[at])) characters++
    return offset
  })
}

export const countCharacters = (text: string): number =>
  Buffer.from(text).reduce((count, byte) => count + Number(!isContinuationByte(byte)), 0)

/** Returns the length in bytes of the token at a position; 0 if the token is not there. */
function findTokenLength(text: Buffer, at: number, token: Buffer): number {
  if (startsWith(text, at, token)) return token.length
  // The text may omit the leading space of its first token.
  const isFirst = at === 0 && token[0] === space
  if (isFirst && startsWith(text, at, token.subarray(1))) return token.length - 1
  // Bytes that form no character appear in the text as U+FFFD.
  return token.length > 0 && !isUtf8(token) && startsWith(text, at, replacementBytes)
    ? replacementBytes.length
    : 0
}

const startsWith = (text: Buffer, at: number, part: Buffer): boolean =>
  text.subarray(at, at + part.length).equals(part)

const isContinuationByte = (byte = 0): boolean => (byte & 0xc0) === 0x80
