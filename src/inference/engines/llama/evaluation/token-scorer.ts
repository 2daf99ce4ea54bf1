/**
 * The model's own log probabilities at a position, before everything that changes them to choose a
 * token. The native context has no call for logits, so the position is sampled again: by a chain
 * that keeps the likeliest tokens, and by one that keeps all and tells how likely its choice was.
 */

import type { NativeContext } from './native-context.ts'
import type { NativeSampler } from './sampler-pool.ts'
import type { Token } from '../runtime.ts'

/** Added to the logits of two tokens, so that they come before all others. */
const pairBias = 200

export class TokenScorer {
  readonly #context: NativeContext
  readonly #count: number
  readonly #likeliest: NativeSampler
  readonly #all: NativeSampler
  #pair: NativeSampler | null = null

  /** `count` tokens are ranked. */
  constructor(context: NativeContext, count: number) {
    this.#context = context
    this.#count = Math.max(1, count)
    this.#likeliest = context.takeSampler()
    this.#likeliest.applyConfig({ temperature: 1, topK: this.#count, seed: 1 })
    this.#all = context.takeSampler()
    this.#all.applyConfig({ temperature: 0 })
  }

  /** Log probabilities of the likeliest tokens, in their order, and of `token`. */
  async score(index: number, token: Token): Promise<ReadonlyMap<Token, number>> {
    const [[first, , confidence = 0], [, ranked = []]] = await Promise.all([
      this.#context.sample(index, this.#all, { probabilities: false, confidence: true }),
      this.#context.sample(index, this.#likeliest, { probabilities: true, confidence: false }),
    ])
    const shares = toShares(ranked)
    const logprobs = toLogprobs(shares, { first, confidence })
    if (logprobs.has(token)) return logprobs
    const pair = toLogprobs(await this.#shareOf(index, first, token), { first, confidence })
    return new Map([...logprobs, [token, pair.get(token) ?? -Infinity]])
  }

  dispose(): void {
    for (const sampler of [this.#likeliest, this.#all, this.#pair]) {
      if (sampler !== null) this.#context.releaseSampler(sampler)
    }
  }

  /** Both tokens get the same bias, so what is left of the others' shares does not matter. */
  async #shareOf(index: number, first: Token, token: Token): Promise<ReadonlyMap<Token, number>> {
    this.#pair ??= this.#context.takeSampler()
    this.#pair.applyConfig({
      temperature: 1,
      topK: 2,
      seed: 1,
      tokenBiasKeys: Uint32Array.of(first, token),
      tokenBiasValues: Float32Array.of(pairBias, pairBias),
    })
    const how = { probabilities: true, confidence: false }
    const [, ranked = []] = await this.#context.sample(index, this.#pair, how)
    return toShares(ranked)
  }
}

/** From tokens and their probabilities in turn. */
function toShares(ranked: readonly number[]): ReadonlyMap<Token, number> {
  const shares = new Map<Token, number>()
  for (let at = 1; at < ranked.length; at += 2) shares.set(ranked[at - 1] ?? 0, ranked[at] ?? 0)
  return shares
}

/**
 * Log probabilities from shares among a few tokens, given the probability of one of them among all.
 * Ties may leave that one out; its share is then that of the likeliest.
 */
function toLogprobs(
  shares: ReadonlyMap<Token, number>,
  { first, confidence }: { readonly first: Token; readonly confidence: number },
): Map<Token, number> {
  const known = shares.get(first) ?? Math.max(...shares.values())
  const base = Math.log(confidence) - Math.log(known)
  const entries = [...shares].map(
    ([token, share]) => [token, Math.min(0, Math.log(share) + base)] as const,
  )
  return new Map(entries)
}
