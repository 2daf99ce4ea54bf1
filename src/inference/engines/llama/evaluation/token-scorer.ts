/**
 * The model's own log probabilities at a position, before sampling options change them. The native
 * context cannot return logits, so the position is sampled again: by a sampler that keeps the most
 * likely tokens, and by a sampler that returns the probability of its choice among all tokens.
 */

import type { NativeContext, NativeSampler } from './native-context.ts'
import type { Token } from '../runtime.ts'

/** Added to the logits of a few tokens, so that they rank before all others. */
const liftBias = 200
/**
 * A token less likely than this fraction of the most likely token changes no sum of probabilities:
 * they are added as 32-bit floats, beginning with the most likely as 1. Without such tokens, only a
 * part of the vocabulary is sorted, and sorting is the slow part.
 */
const minShare = 2 ** -24
/** The minimum number of ranked tokens: they usually include a randomly drawn token. */
const minRanked = 40

/** The values read at a position before its token is known. */
export interface PositionReading {
  /** A token drawn from all tokens, and its probability. */
  readonly drawn: Token
  readonly confidence: number
  /**
   * The most likely tokens in order, with their shares of the total probability of these tokens.
   */
  readonly ranked: ReadonlyMap<Token, number>
}

export class TokenScorer {
  readonly #context: NativeContext
  readonly #count: number
  readonly #likeliest: NativeSampler
  readonly #all: NativeSampler
  #few: NativeSampler | null = null

  /** Ranks `count` tokens, or one if `count` is 0. */
  constructor(context: NativeContext, count: number) {
    this.#context = context
    this.#count = Math.max(1, count)
    this.#likeliest = context.takeSampler()
    const topK = Math.max(this.#count, minRanked)
    this.#likeliest.applyConfig({ temperature: 1, topK, seed: 1 })
    this.#all = context.takeSampler()
    this.#all.applyConfig({ temperature: 1, minP: minShare, seed: 1 })
  }

  async read(index: number): Promise<PositionReading> {
    const [[drawn, , confidence = 0], [, ranked = []]] = await Promise.all([
      this.#context.sample(index, this.#all, { probabilities: false, confidence: true }),
      this.#context.sample(index, this.#likeliest, { probabilities: true, confidence: false }),
    ])
    return { drawn, confidence, ranked: toShares(ranked) }
  }

  /** The log probabilities of the most likely tokens in order, and of `token`. */
  async score(
    index: number,
    token: Token,
    { drawn, confidence, ranked }: PositionReading,
  ): Promise<ReadonlyMap<Token, number>> {
    const [first = token] = ranked.keys()
    const others = [...new Set([drawn, token])].filter((one) => !ranked.has(one))
    const shares = others.length === 0 ? ranked : await this.#sharesOf(index, [first, ...others])
    const ratioOf = (one: Token): number => {
      const among = ranked.has(one) ? ranked : shares
      return Math.log((among.get(one) ?? 0) / (among.get(first) ?? 1))
    }
    const base = Math.log(confidence) - ratioOf(drawn)
    const listed = new Set([...[...ranked.keys()].slice(0, this.#count), token])
    return new Map(Array.from(listed, (one) => [one, Math.min(0, base + ratioOf(one))]))
  }

  dispose(): void {
    for (const sampler of [this.#likeliest, this.#all, this.#few]) {
      if (sampler !== null) this.#context.releaseSampler(sampler)
    }
  }

  /** All tokens get the same bias, so the small shares of other tokens do not matter. */
  async #sharesOf(index: number, tokens: readonly Token[]): Promise<ReadonlyMap<Token, number>> {
    this.#few ??= this.#context.takeSampler()
    this.#few.applyConfig({
      temperature: 1,
      topK: tokens.length,
      seed: 1,
      tokenBiasKeys: Uint32Array.from(tokens),
      tokenBiasValues: new Float32Array(tokens.length).fill(liftBias),
    })
    const how = { probabilities: true, confidence: false }
    const [, ranked = []] = await this.#context.sample(index, this.#few, how)
    return toShares(ranked)
  }
}

/** Converts alternating tokens and probabilities. */
function toShares(ranked: readonly number[]): ReadonlyMap<Token, number> {
  const shares = new Map<Token, number>()
  for (let at = 1; at < ranked.length; at += 2) shares.set(ranked[at - 1] ?? 0, ranked[at] ?? 0)
  return shares
}
