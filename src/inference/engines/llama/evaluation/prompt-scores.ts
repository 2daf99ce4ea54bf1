/** Collects the log probabilities of a prompt's tokens while they are evaluated. Pure. */

import type { PromptLogprob } from '../../../generation/inference-engine.ts'
import type { PlainRequest } from '../protocol.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { describeLogprobs } from '../token-text.ts'

/**
 * The maximum number of tokens per step, because each needs as many logits as the vocabulary has
 * tokens.
 */
export const scoredAtOnce = 64

export class PromptScores {
  /** The number of most likely tokens to report at each position. */
  readonly count: number
  readonly #tokens: readonly Token[]
  readonly #vocabulary: Vocabulary
  /** The number of tokens before the client's tokens: 0, or 1 for the model's first token. */
  readonly #added: number
  readonly #scores: ReadonlyMap<Token, number>[] = []

  private constructor(
    tokens: readonly Token[],
    vocabulary: Vocabulary,
    { count, added }: { readonly count: number; readonly added: number },
  ) {
    this.#tokens = tokens
    this.#vocabulary = vocabulary
    this.count = count
    this.#added = added
  }

  /** `null` if the request does not ask for logprobs of the prompt. */
  static open(
    { input, sampling }: PlainRequest,
    { tokens }: { readonly tokens: readonly Token[] },
    vocabulary: Vocabulary,
  ): PromptScores | null {
    const { logprobs: count, echo } = sampling
    if (count === null || !echo || input.kind !== 'text') return null
    const isAdded = input.tokens === undefined && tokens[0] === vocabulary.first
    return new PromptScores(tokens, vocabulary, { count, added: isAdded ? 1 : 0 })
  }

  /** Adds the scores of the tokens that follow each of the next prompt tokens. */
  add(scores: readonly ReadonlyMap<Token, number>[]): void {
    for (const score of scores) this.#scores.push(score)
  }

  /** The log probabilities of the client's tokens. The first token has none. */
  described(): readonly PromptLogprob[] {
    const own = this.#tokens.slice(this.#added)
    return own.map((token, at): PromptLogprob => {
      if (at === 0) {
        const before = this.#tokens.slice(0, this.#added)
        return { token: this.#vocabulary.textOf([token], before), logprob: null, top: [] }
      }
      const score = this.#scores[this.#added + at - 1] ?? new Map<Token, number>()
      return describeLogprobs(this.#vocabulary, token, score, this.count)
    })
  }
}
