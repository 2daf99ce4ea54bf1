/** Turns tokens into text that ends between characters: a character may be spread over tokens. */

import type { Token, Vocabulary } from './runtime.ts'

const replacement = '\uFFFD'
/** As far as a vocabulary looks back to decide about a space. */
const lookBack = 4
/** A character needs four at most; more are bytes that never become one. */
const mostPending = 32

/** Never tells half a character. Bytes that are none become U+FFFD. */
export class TokenText {
  readonly #vocabulary: Vocabulary
  #before: readonly Token[]
  #pending: Token[] = []
  /** How much of the pending tokens' text was told. */
  #told = 0

  /** `prompt` stands before the first token. */
  constructor(vocabulary: Vocabulary, prompt: readonly Token[]) {
    this.#vocabulary = vocabulary
    this.#before = prompt.slice(-lookBack)
  }

  /** A character is not complete. */
  get isHolding(): boolean {
    return this.#pending.length > 0
  }

  push(token: Token): string {
    this.#pending.push(token)
    const text = this.#vocabulary.textOf(this.#pending, this.#before)
    const isHalf = text.endsWith(replacement) && this.#pending.length < mostPending
    const news = text.slice(this.#told, isHalf ? -1 : undefined)
    if (isHalf) {
      this.#told += news.length
    } else {
      this.#told = 0
      this.#before = [...this.#before, ...this.#pending].slice(-lookBack)
      this.#pending = []
    }
    return news
  }
}
