/** Converts tokens to text and bytes, finds stop texts, and describes log probabilities. Pure. */

import type { TokenChance, TokenLogprob } from '../../generation/inference-engine.ts'
import type { Token, Vocabulary } from './runtime.ts'

const replacementCharacter = '\uFFFD'
/** The number of preceding tokens that determine whether the next token has a leading space. */
const lookBackTokens = 4
/** The maximum number of pending tokens. More cannot belong to a character of up to four bytes. */
const maxPending = 32

/** Converts tokens to whole characters. Bytes that form no character become U+FFFD. */
export class TokenText {
  readonly #vocabulary: Vocabulary
  #precedingTokens: readonly Token[]
  #pending: Token[] = []
  /** The number of characters of pending tokens that were already returned. */
  #returnedChars = 0

  constructor(vocabulary: Vocabulary, prompt: readonly Token[]) {
    this.#vocabulary = vocabulary
    this.#precedingTokens = prompt.slice(-lookBackTokens)
  }

  get hasPendingText(): boolean {
    return this.#pending.length > 0
  }

  push(token: Token): string {
    this.#pending.push(token)
    const text = this.#vocabulary.textOf(this.#pending, this.#precedingTokens)
    const isHalf = text.endsWith(replacementCharacter) && this.#pending.length < maxPending
    const complete = text.slice(this.#returnedChars, isHalf ? -1 : undefined)
    if (isHalf) {
      this.#returnedChars += complete.length
    } else {
      this.#returnedChars = 0
      this.#precedingTokens = [...this.#precedingTokens, ...this.#pending].slice(-lookBackTokens)
      this.#pending = []
    }
    return complete
  }
}

/** Finds stop texts in a stream. Holds back text that may be the beginning of a stop text. */
export class StopScanner {
  readonly #stops: readonly string[]
  #heldText = ''
  hasStopped = false

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '')
  }

  get hasPendingText(): boolean {
    return this.#heldText !== ''
  }

  /** Returns text that can be sent. The stop text that is completed first counts. */
  push(text: string): string {
    if (this.hasStopped) return ''
    const all = this.#heldText + text
    const at = findFirstStop(all, this.#stops)
    if (at !== null) {
      this.hasStopped = true
      this.#heldText = ''
      return all.slice(0, at)
    }
    const kept = partialMatchLength(all, this.#stops)
    this.#heldText = all.slice(all.length - kept)
    return all.slice(0, all.length - kept)
  }

  flush(): string {
    const held = this.#heldText
    this.#heldText = ''
    return held
  }
}

function findFirstStop(text: string, stops: readonly string[]): number | null {
  let best: { readonly at: number; readonly end: number } | null = null
  for (const stop of stops) {
    const at = text.indexOf(stop)
    if (at === -1) continue
    const end = at + stop.length
    if (best === null || end < best.end || (end === best.end && at < best.at)) best = { at, end }
  }
  return best === null ? null : best.at
}

/** Returns the number of trailing characters that may be the beginning of a stop text. */
export function partialMatchLength(text: string, stops: readonly string[]): number {
  let longest = 0
  for (const stop of stops) {
    const max = Math.min(stop.length - 1, text.length)
    for (let length = max; length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) {
        longest = length
        break
      }
    }
  }
  return longest
}

/** A replacement for -Infinity, which JSON cannot represent. */
const minLogprob = -9999

export function describeLogprobs(
  vocabulary: Vocabulary,
  token: Token,
  logprobs: ReadonlyMap<Token, number>,
  count: number,
): TokenLogprob {
  const top: TokenChance[] = []
  for (const [id, logprob] of logprobs) {
    if (top.length >= count) break
    top.push(toChance(vocabulary, id, logprob))
  }
  return { ...toChance(vocabulary, token, logprobs.get(token) ?? -Infinity), top }
}

function toChance(vocabulary: Vocabulary, id: Token, exact: number): TokenChance {
  const token = vocabulary.nameOf(id)
  const logprob = Math.max(exact, minLogprob)
  const bytes = token.includes(replacementCharacter) ? vocabulary.bytesOf(id) : null
  return bytes === null ? { token, logprob } : { token, logprob, bytes }
}

/** GPT-2 spells each byte as a character, and non-printable bytes as characters above 255. */
const bytesByLetter = new Map<number, number>()
for (let byte = 0; byte < 256; byte++) bytesByLetter.set(toByteLetter(byte), byte)

function toByteLetter(byte: number): number {
  if (byte <= 32) return 256 + byte
  if (byte >= 127 && byte <= 160) return 256 + 33 + byte - 127
  return byte === 173 ? 256 + 67 : byte
}

/** Returns the bytes of a token; `null` if its spelling or its tokenizer is unknown. */
export function spellingToBytes(tokenizer: string, spelling: string): readonly number[] | null {
  if (tokenizer === 'gpt2') return lettersToBytes(spelling)
  if (tokenizer !== 'llama') return null
  const byte = /^<0x([\da-f]{2})>$/i.exec(spelling)?.[1]
  return byte === undefined ? [...Buffer.from(spelling.replaceAll('▁', ' '))] : [parseInt(byte, 16)]
}

/** Returns the maximum length of a token; `Infinity` for tokenizers that may omit characters. */
export function maxSpellingLength(tokenizer: string, spellings: readonly string[]): number {
  if (tokenizer !== 'gpt2' && tokenizer !== 'llama') return Infinity
  return spellings.reduce((longest, { length }) => Math.max(longest, length), 1)
}

function lettersToBytes(spelling: string): readonly number[] | null {
  const bytes = Array.from(spelling, (letter) => bytesByLetter.get(letter.codePointAt(0) ?? 0))
  return bytes.every((byte) => byte !== undefined) ? bytes : null
}

type Tokenize = (text: string) => readonly Token[]

/**
 * Finds how texts can be cut at spaces, which is possible only if no token extends across a space.
 */
export function findSlicing(
  spellings: readonly string[],
  tokenize: Tokenize,
): Vocabulary['slicing'] {
  if (spellings.some((spelling) => /[A-Za-z][ ▁Ġ]/.test(spelling))) return null
  const [first, second] = ['Once upon', ' a time']
  const whole = tokenize(first + second).join()
  const isWhole = (slice: string): boolean =>
    [...tokenize(first), ...tokenize(slice)].join() === whole
  if (isWhole(second)) return 'with space'
  return isWhole(second.slice(1)) ? 'without space' : null
}

const sliceChars = 8192
const slicePointPattern = /(?<=[A-Za-z]) (?=[A-Za-z])/g

/** Yields slices of similar length, or the whole text if it has no suitable spaces. */
export function* sliceText(text: string, slices: Vocabulary['slicing']): Generator<string> {
  let from = slices === null ? text.length : 0
  if (slices === null) yield text
  while (text.length - from > sliceChars) {
    slicePointPattern.lastIndex = from + sliceChars
    const at = slicePointPattern.exec(text)?.index
    if (at === undefined) break
    yield text.slice(from, at)
    from = slices === 'with space' ? at : at + 1
  }
  if (from < text.length) yield text.slice(from)
}
