/**
 * A pool of native samplers. A sampler holds a number for every token of the vocabulary until the
 * garbage collector frees it, and the collector does not know its size.
 */

export interface NativeSampler {
  applyConfig(config: SamplerConfig): void
  dispose(): void
}

/** Options that are left out have no effect; without `topK` nothing is sorted. */
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

/** The maximum number of samplers that are kept. */
const maxKept = 64
/**
 * Two seeds, because at least one differs from the last seed, which restarts the random numbers.
 */
const resetSeeds = [0, 1]

export class SamplerPool {
  readonly #create: () => NativeSampler
  readonly #free: NativeSampler[] = []
  readonly #busy = new Set<NativeSampler>()

  constructor(create: () => NativeSampler) {
    this.#create = create
  }

  /** Returns a sampler without settings of an earlier use. */
  take(): NativeSampler {
    return this.#free.pop() ?? this.#create()
  }

  /** A sampler that is still in use, because another part of its step failed, is not kept. */
  release(sampler: NativeSampler): void {
    if (this.#busy.has(sampler) || this.#free.length >= maxKept) return sampler.dispose()
    // Applying a configuration removes the settings that it leaves out.
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
