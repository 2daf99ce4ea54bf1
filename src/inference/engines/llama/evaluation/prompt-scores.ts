/** The log probabilities of a prompt's tokens, as they are evaluated. Pure. */

import type { PromptLogprob } from '../../../generation/inference-engine.ts'
import type { PlainRequest } from '../protocol.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { describeLogprobs } from '../token-text.ts'

/** The logits of so many tokens are held at a time: each has as many as the vocabulary. */
export const scoredAtOnce = 64

export class PromptScores {
  /** The most likely tokens that are told at each position. */
  readonly count: number
  readonly #tokens: readonly Token[]
  readonly #vocabulary: Vocabulary
  /** The tokens before the client's own: the model's first token at most. */
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

  /** `null` where they are not asked for. */
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

  /** Of what follows each of the next tokens. */
  add(scores: readonly ReadonlyMap<Token, number>[]): void {
    for (const score of scores) this.#scores.push(score)
  }

  /** Of the client's own tokens; nothing is told of the first. */
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
