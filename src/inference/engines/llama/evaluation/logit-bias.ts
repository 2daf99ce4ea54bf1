/** The numbers that are added to the model's logits before a token is chosen. Pure. */

import type { Sampling } from '../../../generation/inference-engine.ts'
import type { Token } from '../runtime.ts'

type BiasOptions = Pick<Sampling, 'logitBias' | 'frequencyPenalty' | 'presencePenalty'>

/**
 * The client's bias minus the penalties of the public API: for every token of the answer,
 * `presence_penalty` once and `frequency_penalty` for each occurrence. Tokens of the prompt do not
 * count.
 */
export class LogitBias {
  readonly #options: BiasOptions
  readonly #counts = new Map<Token, number>()
  readonly #biases: Map<Token, number>

  constructor(options: BiasOptions) {
    this.#options = options
    const entries = Object.entries(options.logitBias)
    this.#biases = new Map(entries.map(([token, bias]) => [Number(token), bias]))
  }

  /** Whether the bias changes nothing, now and later. */
  get isNeutral(): boolean {
    return this.#biases.size === 0 && !this.isChanging
  }

  /** Whether tokens of the answer change the bias. */
  get isChanging(): boolean {
    const { frequencyPenalty, presencePenalty } = this.#options
    return frequencyPenalty !== 0 || presencePenalty !== 0
  }

  /** The biases by token; every call returns the same map. */
  get biases(): ReadonlyMap<Token, number> {
    return this.#biases
  }

  /** Counts one more occurrence of the token in the answer. */
  accept(token: Token): void {
    if (!this.isChanging) return
    const { logitBias, frequencyPenalty, presencePenalty } = this.#options
    const count = (this.#counts.get(token) ?? 0) + 1
    this.#counts.set(token, count)
    const penalty = presencePenalty + count * frequencyPenalty
    this.#biases.set(token, (logitBias[token] ?? 0) - penalty)
  }
}
