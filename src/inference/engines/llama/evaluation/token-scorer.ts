/**
 * The model's log probabilities at a position, before sampling options change them. The native
 * context cannot return logits, so each position is sampled twice: by a sampler that keeps the most
 * likely tokens, and by one that returns the probability of its choice among all tokens.
 */

import type { NativeContext, NativeSampler } from './native-context.ts'
import type { Token } from '../runtime.ts'

const boostBias = 200
/**
 * Tokens with less than this fraction of the highest probability are left out, because they are too
 * small to change the sums.
 */
const minProbabilityRatio = 2 ** -24
/** The minimum number of tokens to rank, so that a randomly drawn token is usually among them. */
const minRanked = 40

export interface PositionSample {
  readonly drawn: Token
  readonly confidence: number
  /** The most likely tokens in order, with their shares of the sum of their probabilities. */
  readonly topShares: ReadonlyMap<Token, number>
}

export class TokenScorer {
  readonly #context: NativeContext
  readonly #count: number
  readonly #topSampler: NativeSampler
  readonly #fullSampler: NativeSampler
  #boostedSampler: NativeSampler | null = null

  constructor(context: NativeContext, count: number) {
    this.#context = context
    this.#count = Math.max(1, count)
    this.#topSampler = context.samplers.acquire()
    const topK = Math.max(this.#count, minRanked)
    this.#topSampler.applyConfig({ temperature: 1, topK, seed: 1 })
    this.#fullSampler = context.samplers.acquire()
    this.#fullSampler.applyConfig({ temperature: 1, minP: minProbabilityRatio, seed: 1 })
  }

  async read(index: number): Promise<PositionSample> {
    const [[drawn, , confidence = 0], [, ranked = []]] = await Promise.all([
      this.#context.sample(index, this.#fullSampler, { probabilities: false, confidence: true }),
      this.#context.sample(index, this.#topSampler, { probabilities: true, confidence: false }),
    ])
    return { drawn, confidence, topShares: toShares(ranked) }
  }

  async score(
    index: number,
    token: Token,
    { drawn, confidence, topShares }: PositionSample,
  ): Promise<ReadonlyMap<Token, number>> {
    const [first = token] = topShares.keys()
    const others = [...new Set([drawn, token])].filter((one) => !topShares.has(one))
    const shares =
      others.length === 0 ? topShares : await this.#measureShares(index, [first, ...others])
    const ratioOf = (one: Token): number => {
      const among = topShares.has(one) ? topShares : shares
      return Math.log((among.get(one) ?? 0) / (among.get(first) ?? 1))
    }
    const base = Math.log(confidence) - ratioOf(drawn)
    const listed = new Set([...[...topShares.keys()].slice(0, this.#count), token])
    return new Map(Array.from(listed, (one) => [one, Math.min(0, base + ratioOf(one))]))
  }

  dispose(): void {
    for (const sampler of [this.#topSampler, this.#fullSampler, this.#boostedSampler]) {
      if (sampler !== null) this.#context.samplers.release(sampler)
    }
  }

  /** All given tokens have the same bias, which makes the shares of other tokens negligible. */
  async #measureShares(
    index: number,
    tokens: readonly Token[],
  ): Promise<ReadonlyMap<Token, number>> {
    this.#boostedSampler ??= this.#context.samplers.acquire()
    this.#boostedSampler.applyConfig({
      temperature: 1,
      topK: tokens.length,
      seed: 1,
      tokenBiasKeys: Uint32Array.from(tokens),
      tokenBiasValues: new Float32Array(tokens.length).fill(boostBias),
    })
    const readOptions = { probabilities: true, confidence: false }
    const [, ranked = []] = await this.#context.sample(index, this.#boostedSampler, readOptions)
    return toShares(ranked)
  }
}

function toShares(ranked: readonly number[]): ReadonlyMap<Token, number> {
  const shares = new Map<Token, number>()
  for (let at = 1; at < ranked.length; at += 2) shares.set(ranked[at - 1] ?? 0, ranked[at] ?? 0)
  return shares
}
