/** Turns tokens into text: characters, stop texts, bytes and log probabilities. Pure. */

import type { TokenChance, TokenLogprob } from '../../generation/inference-engine.ts'
import type { Token, Vocabulary } from './runtime.ts'

const replacement = '\uFFFD'
/** Tokens before the text by which a vocabulary decides about a leading space. */
const lookBack = 4
/** A character has four bytes at most; more are bytes that never become one. */
const mostPending = 32

/**
 * The text of tokens, in whole characters: one may be spread over several tokens. Bytes that are no
 * character become U+FFFD.
 */
export class TokenText {
  readonly #vocabulary: Vocabulary
  #before: readonly Token[]
  #pending: Token[] = []
  /** How much of the pending tokens' text was returned already. */
  #returned = 0

  /** `prompt` precedes the first token. */
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
    const isHalf = text.endsWith(replacement) && this.#pending.length < mostPending
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

/** Finds stop texts in a stream; holds back what may be the beginning of one. */
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

  /** The text that may be sent now. The stop text that is complete first wins. */
  push(text: string): string {
    if (this.#hasStopped) return ''
    const all = this.#held + text
    const at = firstStop(all, this.#stops)
    if (at !== null) {
      this.#hasStopped = true
      this.#held = ''
      return all.slice(0, at)
    }
    const kept = longestBeginning(all, this.#stops)
    this.#held = all.slice(all.length - kept)
    return all.slice(0, all.length - kept)
  }

  /** What was held back: nothing follows that could complete it. */
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

/** The number of characters at the end of the text that may be the beginning of a stop text. */
export function longestBeginning(text: string, stops: readonly string[]): number {
  let longest = 0
  for (const stop of stops) {
    const most = Math.min(stop.length - 1, text.length)
    for (let length = most; length > longest; length--) {
      if (stop.startsWith(text.slice(text.length - length))) {
        longest = length
        break
      }
    }
  }
  return longest
}

/** JSON has no -Infinity. */
const leastLogprob = -9999

/** How likely the chosen token was, and the `count` most likely ones. */
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
  const logprob = Math.max(exact, leastLogprob)
  const bytes = token.includes(replacement) ? vocabulary.bytesOf(id) : null
  return bytes === null ? { token, logprob } : { token, logprob, bytes }
}

/** GPT-2's spelling has a letter for each byte: the printable one itself, or one above 255. */
const byteOfLetter = new Map<number, number>()
for (let byte = 0; byte < 256; byte++) byteOfLetter.set(letterOf(byte), byte)

function letterOf(byte: number): number {
  if (byte <= 32) return 256 + byte
  if (byte >= 127 && byte <= 160) return 256 + 33 + byte - 127
  return byte === 173 ? 256 + 67 : byte
}

/** The bytes of a token as a GGUF file spells it; `null` for tokenizers that spell differently. */
export function bytesOfSpelling(tokenizer: string, spelling: string): readonly number[] | null {
  if (tokenizer === 'gpt2') return bytesOfLetters(spelling)
  if (tokenizer !== 'llama') return null
  const byte = /^<0x([\da-f]{2})>$/i.exec(spelling)?.[1]
  return byte === undefined ? [...Buffer.from(spelling.replaceAll('▁', ' '))] : [parseInt(byte, 16)]
}

/**
 * An upper bound for the characters of a token; `Infinity` for tokenizers that leave characters
 * out. A spelling has at least as many letters as the token has characters.
 */
export function longestSpelling(tokenizer: string, spellings: readonly string[]): number {
  if (tokenizer !== 'gpt2' && tokenizer !== 'llama') return Infinity
  return spellings.reduce((longest, { length }) => Math.max(longest, length), 1)
}

function bytesOfLetters(spelling: string): readonly number[] | null {
  const bytes = Array.from(spelling, (letter) => byteOfLetter.get(letter.codePointAt(0) ?? 0))
  return bytes.every((byte) => byte !== undefined) ? bytes : null
}

type Tokenize = (text: string) => readonly Token[]

/**
 * Whether texts can be cut before a space that stands between two letters: no token may have both
 * sides, and the slices must have the tokens that the whole has.
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

/** Characters. */
const sliceLength = 8192
const cut = /(?<=[A-Za-z]) (?=[A-Za-z])/g

/** The slices of a text, each about as long; one where it has no such spaces. */
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
