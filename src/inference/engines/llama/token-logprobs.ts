/** Tells how likely a token was, among those that it was chosen from. */

import type { TokenLogprob } from '../../engine.ts'
import type { Token, Vocabulary } from './runtime.ts'

/** JSON has no -Infinity. */
const leastLogprob = -9999

/** The chosen token, and the `count` most likely ones. */
export function describeLogprobs(
  vocabulary: Vocabulary,
  token: Token,
  probabilities: ReadonlyMap<Token, number>,
  count: number,
): TokenLogprob {
  const top: { token: string; logprob: number }[] = []
  for (const [id, probability] of probabilities) {
    if (top.length >= count) break
    top.push({ token: vocabulary.nameOf(id), logprob: toLogprob(probability) })
  }
  const logprob = toLogprob(probabilities.get(token) ?? 0)
  return { token: vocabulary.nameOf(token), logprob, top }
}

const toLogprob = (probability: number): number =>
  probability > 0 ? Math.log(probability) : leastLogprob
