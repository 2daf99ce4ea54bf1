/** Collects the log probabilities of a prompt's tokens while they are evaluated. Pure. */

import type { PromptLogprob } from '../../../generation/inference-engine.ts'
import type { LlamaRequest } from '../protocol.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { describeLogprobs } from '../token-text.ts'

/** Each scored token needs as many logits as the vocabulary has tokens. */
export const maxScoredTokens = 64

export class PromptScores {
  readonly count: number
  readonly #tokens: readonly Token[]
  readonly #vocabulary: Vocabulary
  /** 1 if the model requires a token before the client's tokens, else 0. */
  readonly #addedTokens: number
  readonly #scores: ReadonlyMap<Token, number>[] = []

  private constructor(
    tokens: readonly Token[],
    vocabulary: Vocabulary,
    count: number,
    added: number,
  ) {
    this.#tokens = tokens
    this.#vocabulary = vocabulary
    this.count = count
    this.#addedTokens = added
  }

  static create(
    { input, sampling }: LlamaRequest,
    { tokens }: { readonly tokens: readonly Token[] },
    vocabulary: Vocabulary,
  ): PromptScores | null {
    const { logprobs: count, echo } = sampling
    if (count === null || !echo || input.kind !== 'text') return null
    const isAdded = input.tokens === undefined && tokens[0] === vocabulary.firstToken
    return new PromptScores(tokens, vocabulary, count, isAdded ? 1 : 0)
  }

  /** Each element has the scores of the tokens that may follow one prompt token. */
  add(scores: readonly ReadonlyMap<Token, number>[]): void {
    for (const score of scores) this.#scores.push(score)
  }

  /** The first token has no log probability. */
  toLogprobs(): readonly PromptLogprob[] {
    const own = this.#tokens.slice(this.#addedTokens)
    return own.map((token, at): PromptLogprob => {
      if (at === 0) {
        const before = this.#tokens.slice(0, this.#addedTokens)
        return { token: this.#vocabulary.textOf([token], before), logprob: null, top: [] }
      }
      const score = this.#scores[this.#addedTokens + at - 1] ?? new Map<Token, number>()
      return describeLogprobs(this.#vocabulary, token, score, this.count)
    })
  }
}
