/** Converts tokens to text: characters, stop texts, bytes and log probabilities. Pure. */

import type { TokenChance, TokenLogprob } from '../../generation/inference-engine.ts'
import type { Token, Vocabulary } from './runtime.ts'

const replacement = '\uFFFD'
/** The number of preceding tokens that determine whether a token has a leading space. */
const lookBack = 4
/**
 * The maximum number of pending tokens. A character has at most four bytes, so more pending tokens
 * never form one.
 */
const maxPending = 32

/**
 * Converts tokens to text in whole characters, because a character may be spread over several
 * tokens. Bytes that form no character become U+FFFD.
 */
export class TokenText {
  readonly #vocabulary: Vocabulary
  #before: readonly Token[]
  #pending: Token[] = []
  /** The number of characters of the pending tokens' text that were already returned. */
  #returned = 0

  /** `prompt` contains the tokens that precede the first one. */
  constructor(vocabulary: Vocabulary, prompt: readonly Token[]) {
    this.#vocabulary = vocabulary
    this.#before = prompt.slice(-lookBack)
  }

  /** Whether a character is incomplete. */
  get isHolding(): boolean {
    return this.#pending.length > 0
  }

  push(token: Token): string {
    this.#pending.push(token)
    const text = this.#vocabulary.textOf(this.#pending, this.#before)
    const isHalf = text.endsWith(replacement) && this.#pending.length < maxPending
    const complete = text.slice(this.#returned, isHalf ? -1 : undefined)
    if (isHalf) {
      this.#returned += complete.length
    } else {
      this.#returned = 0
      this.#before = [...this.#before, ...this.#pending].slice(-lookBack)
      this.#pending = []
    }
    return complete
  }
}

/** Finds stop texts in a stream. Holds back text that may be the beginning of a stop text. */
export class StopScanner {
  readonly #stops: readonly string[]
  #held = ''
  #hasStopped = false

  constructor(stops: readonly string[]) {
    this.#stops = stops.filter((stop) => stop !== '')
  }

  get hasStopped(): boolean {
    return this.#hasStopped
  }

  get isHolding(): boolean {
    return this.#held !== ''
  }

  /** Returns the text that may be sent now. The first stop text to be completed takes effect. */
  push(text: string): string {
    if (this.#hasStopped) return ''
    const all = this.#held + text
    const at = firstStop(all, this.#stops)
    if (at !== null) {
      this.#hasStopped = true
      this.#held = ''
      return all.slice(0, at)
    }
    const kept = maxBeginningLength(all, this.#stops)
    this.#held = all.slice(all.length - kept)
    return all.slice(0, all.length - kept)
  }

  /**
   * Returns the text that was held back, because no text follows that could complete a stop text.
   */
  flush(): string {
    const held = this.#held
    this.#held = ''
    return held
  }
}

function firstStop(text: string, stops: readonly string[]): number | null {
  let best: { readonly at: number; readonly end: number } | null = null
  for (const stop of stops) {
    const at = text.indexOf(stop)
    if (at === -1) continue
    const end = at + stop.length
    if (best === null || end < best.end || (end === best.end && at < best.at)) best = { at, end }
  }
  return best === null ? null : best.at
}

/** The number of trailing characters that may be the beginning of a stop text. */
export function maxBeginningLength(text: string, stops: readonly string[]): number {
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

/** Replaces -Infinity, which JSON cannot represent. */
const minLogprob = -9999

/** The log probabilities of the chosen token and of the `count` most likely tokens. */
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
  const bytes = token.includes(replacement) ? vocabulary.bytesOf(id) : null
  return bytes === null ? { token, logprob } : { token, logprob, bytes }
}

/** GPT-2 spells each byte as one letter: the printable character itself, or a letter above 255. */
const byteOfLetter = new Map<number, number>()
for (let byte = 0; byte < 256; byte++) byteOfLetter.set(letterOf(byte), byte)

function letterOf(byte: number): number {
  if (byte <= 32) return 256 + byte
  if (byte >= 127 && byte <= 160) return 256 + 33 + byte - 127
  return byte === 173 ? 256 + 67 : byte
}

/**
 * The bytes of a token by its spelling in a GGUF file; `null` for tokenizers that spell
 * differently.
 */
export function bytesOfSpelling(tokenizer: string, spelling: string): readonly number[] | null {
  if (tokenizer === 'gpt2') return bytesOfLetters(spelling)
  if (tokenizer !== 'llama') return null
  const byte = /^<0x([\da-f]{2})>$/i.exec(spelling)?.[1]
  return byte === undefined ? [...Buffer.from(spelling.replaceAll('▁', ' '))] : [parseInt(byte, 16)]
}

/**
 * An upper bound of a token's length in characters; `Infinity` for tokenizers that omit characters.
 * A spelling has no fewer letters than the token has characters.
 */
export function maxSpellingLength(tokenizer: string, spellings: readonly string[]): number {
  if (tokenizer !== 'gpt2' && tokenizer !== 'llama') return Infinity
  return spellings.reduce((longest, { length }) => Math.max(longest, length), 1)
}

function bytesOfLetters(spelling: string): readonly number[] | null {
  const bytes = Array.from(spelling, (letter) => byteOfLetter.get(letter.codePointAt(0) ?? 0))
  return bytes.every((byte) => byte !== undefined) ? bytes : null
}

type Tokenize = (text: string) => readonly Token[]

/**
 * Whether texts can be split before a space between two letters: no token may extend across such a
 * space, and the slices must have the same tokens as the whole text.
 */
export function slicesOf(spellings: readonly string[], tokenize: Tokenize): Vocabulary['slices'] {
  if (spellings.some((spelling) => /[A-Za-z][ ▁Ġ]/.test(spelling))) return null
  const [first, second] = ['Once upon', ' a time']
  const whole = tokenize(first + second).join()
  const isWhole = (slice: string): boolean =>
    [...tokenize(first), ...tokenize(slice)].join() === whole
  if (isWhole(second)) return 'with space'
  return isWhole(second.slice(1)) ? 'without space' : null
}

/** The approximate number of characters of a slice. */
const sliceLength = 8192
const cut = /(?<=[A-Za-z]) (?=[A-Za-z])/g

/** Yields slices of similar length, or a single slice if the text has no suitable spaces. */
export function* slicesIn(text: string, slices: Vocabulary['slices']): Generator<string> {
  let from = slices === null ? text.length : 0
  if (slices === null) yield text
  while (text.length - from > sliceLength) {
    cut.lastIndex = from + sliceLength
    const at = cut.exec(text)?.index
    if (at === undefined) break
    yield text.slice(from, at)
    from = slices === 'with space' ? at : at + 1
  }
  if (from < text.length) yield text.slice(from)
}
