/** The bytes of a token, from the way in which a GGUF file spells it. Pure. */

/** The letters that stand for bytes: their own where it can be seen, else one above 255. */
const byteOfLetter = new Map<number, number>()
for (let byte = 0; byte < 256; byte++) byteOfLetter.set(letterOf(byte), byte)

function letterOf(byte: number): number {
  if (byte <= 32) return 256 + byte
  if (byte >= 127 && byte <= 160) return 256 + 33 + byte - 127
  return byte === 173 ? 256 + 67 : byte
}

/** `tokenizer` is the vocabulary's kind; `null` for kinds that spell in another way. */
export function bytesOfSpelling(tokenizer: string, spelling: string): readonly number[] | null {
  if (tokenizer === 'gpt2') return bytesOfLetters(spelling)
  if (tokenizer !== 'llama') return null
  const byte = /^<0x([\da-f]{2})>$/i.exec(spelling)?.[1]
  return byte === undefined ? [...Buffer.from(spelling.replaceAll('▁', ' '))] : [parseInt(byte, 16)]
}

/**
 * No token stands for more characters than this; `Infinity` for kinds that leave characters out. A
 * spelling has at least as many, because letters for bytes are never fewer than its characters.
 */
export function longestSpelling(tokenizer: string, spellings: readonly string[]): number {
  if (tokenizer !== 'gpt2' && tokenizer !== 'llama') return Infinity
  return spellings.reduce((longest, { length }) => Math.max(longest, length), 1)
}

function bytesOfLetters(spelling: string): readonly number[] | null {
  const bytes = Array.from(spelling, (letter) => byteOfLetter.get(letter.codePointAt(0) ?? 0))
  return bytes.every((byte) => byte !== undefined) ? bytes : null
}
