/** Collects the log probabilities of a prompt's tokens while they are evaluated. Pure. */

import type { PromptLogprob } from '../../../generation/inference-engine.ts'
import type { LlamaRequest } from '../protocol.ts'
import type { Token, Vocabulary } from '../runtime.ts'
import { describeLogprobs } from '../token-text.ts'

/**
 * The maximum number of scored tokens per step: each needs a logit for every token of the
 * vocabulary.
 */
export const maxScoredTokens = 64

export type PromptScores = NonNullable<ReturnType<typeof createPromptScores>>

/** Returns `null` if the request does not ask for log probabilities of the prompt. */
export function createPromptScores(
  { input, sampling }: LlamaRequest,
  tokens: readonly Token[],
  vocabulary: Vocabulary,
) {
  const { logprobs: count, echo } = sampling
  if (count === null || !echo || input.kind !== 'text') return null
  const isAdded = input.tokens === undefined && tokens[0] === vocabulary.firstToken
  /** 1 if the model requires a token before the client's tokens, else 0. */
  const addedTokens = isAdded ? 1 : 0
  const scores: ReadonlyMap<Token, number>[] = []
  return {
    count,
    /** Each element has the scores of the tokens that may follow one prompt token. */
    add(more: readonly ReadonlyMap<Token, number>[]): void {
      for (const score of more) scores.push(score)
    },
    /** The first token has no log probability. */
    toLogprobs: (): readonly PromptLogprob[] =>
      tokens.slice(addedTokens).map((token, at) => {
        if (at === 0) {
          const before = tokens.slice(0, addedTokens)
          return { token: vocabulary.textOf([token], before), logprob: null, top: [] }
        }
        const score = scores[addedTokens + at - 1] ?? new Map<Token, number>()
        return describeLogprobs(vocabulary, token, score, count)
      }),
  }
}
