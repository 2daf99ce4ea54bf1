/**
 * Native samplers that are used again. Each holds a number for every token of the vocabulary until
 * the garbage collector finds it, and the collector does not know how large it is.
 */

export interface NativeSampler {
  applyConfig(config: SamplerConfig): void
  dispose(): void
}

/** What is left out is not done; without `topK` nothing is sorted. */
export interface SamplerConfig {
  readonly temperature: number
  readonly topK?: number
  readonly topP?: number
  readonly minP?: number
  readonly seed?: number
  readonly repeatPenalty?: number
  readonly repeatPenaltyMaxTokens?: number
  readonly repeatPenaltyTokens?: Uint32Array
  readonly tokenBiasKeys?: Uint32Array
  readonly tokenBiasValues?: Float32Array
}

/** More are not kept. */
const mostKept = 64
/** Two seeds: one at least differs from the last, so that the random numbers begin anew. */
const resetSeeds = [0, 1]

export class SamplerPool {
  readonly #create: () => NativeSampler
  readonly #free: NativeSampler[] = []
  readonly #busy = new Set<NativeSampler>()

  constructor(create: () => NativeSampler) {
    this.#create = create
  }

  /** Has no settings of an earlier use. */
  take(): NativeSampler {
    return this.#free.pop() ?? this.#create()
  }

  /** Not kept while it is in use, which it is if something failed beside it. */
  release(sampler: NativeSampler): void {
    if (this.#busy.has(sampler) || this.#free.length >= mostKept) return sampler.dispose()
    // What a configuration leaves out is removed.
    for (const seed of resetSeeds) sampler.applyConfig({ temperature: 0, seed })
    this.#free.push(sampler)
  }

  async use<T>(sampler: NativeSampler, call: () => Promise<T>): Promise<T> {
    this.#busy.add(sampler)
    try {
      return await call()
    } finally {
      this.#busy.delete(sampler)
    }
  }
}
