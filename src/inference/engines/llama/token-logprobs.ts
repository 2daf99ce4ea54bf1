/** Tells how likely a token was, among those that it was chosen from. */

import type { TokenChance, TokenLogprob } from '../../generation/inference-engine.ts'
import type { Token, Vocabulary } from './runtime.ts'

/** JSON has no -Infinity. */
const leastLogprob = -9999
const replacement = '\uFFFD'

/** The chosen token, and the `count` most likely ones. */
export function describeLogprobs(
  vocabulary: Vocabulary,
  token: Token,
  probabilities: ReadonlyMap<Token, number>,
  count: number,
): TokenLogprob {
  const top: TokenChance[] = []
  for (const [id, probability] of probabilities) {
    if (top.length >= count) break
    top.push(toChance(vocabulary, id, probability))
  }
  return { ...toChance(vocabulary, token, probabilities.get(token) ?? 0), top }
}

function toChance(vocabulary: Vocabulary, id: Token, probability: number): TokenChance {
  const token = vocabulary.nameOf(id)
  const logprob = probability > 0 ? Math.log(probability) : leastLogprob
  const bytes = token.includes(replacement) ? vocabulary.bytesOf(id) : null
  return bytes === null ? { token, logprob } : { token, logprob, bytes }
}
