/** Computes the offsets of tokens in a text. Pure. */

import { isUtf8 } from 'node:buffer'

/** A token of a text. `bytes` is given if `token` is not the token's text. */
interface NamedToken {
  readonly token: string
  readonly bytes?: readonly number[]
}

const space = 0x20
const replacement = Buffer.from('\uFFFD')

/**
 * The offset of each token in code points, as the public API counts; `start` is the offset of the
 * text. All tokens of one character have the character's offset. Tokens that are not in the text,
 * such as an end mark or a part of a cut-off character, have the offset of the text after them.
 */
export function offsetsIn(text: string, tokens: readonly NamedToken[], start: number): number[] {
  const bytes = Buffer.from(text)
  let at = 0
  let characters = start
  return tokens.map(({ token, bytes: given }) => {
    const offset = isContinued(bytes[at]) ? characters - 1 : characters
    const end = at + lengthIn(bytes, at, Buffer.from(given ?? token))
    for (; at < end; at++) if (!isContinued(bytes[at])) characters++
    return offset
  })
}

export const countCharacters = (text: string): number =>
  Buffer.from(text).reduce((count, byte) => count + Number(!isContinued(byte)), 0)

/** How many bytes the token takes at a position of the text; 0 if the token is not there. */
function lengthIn(text: Buffer, at: number, token: Buffer): number {
  if (startsWith(text, at, token)) return token.length
  // The text may omit the leading space of its first token.
  const isFirst = at === 0 && token[0] === space
  if (isFirst && startsWith(text, at, token.subarray(1))) return token.length - 1
  // Bytes that form no character appear in the text as U+FFFD.
  return token.length > 0 && !isUtf8(token) && startsWith(text, at, replacement)
    ? replacement.length
    : 0
}

const startsWith = (text: Buffer, at: number, part: Buffer): boolean =>
  text.subarray(at, at + part.length).equals(part)

/** Whether a byte is a continuation byte of UTF-8. */
const isContinued = (byte = 0): boolean => (byte & 0xc0) === 0x80
