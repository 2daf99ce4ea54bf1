/**
 * The native context of node-llama-cpp. It allows choosing the content of a pass and sampling a
 * position more than once. It is not part of the public API, so only this file uses it, and the
 * version of the library is pinned.
 */

import type { LlamaContext, LlamaModel } from 'node-llama-cpp'
import type { Token } from '../runtime.ts'
import { manyTokens, type Tuning } from '../tuning/tuning.ts'

/** The token, a list of alternating tokens and probabilities, and the token's probability. */
export type NativeSample = readonly [Token, (readonly number[])?, number?]

interface AddonContext {
  initBatch(size: number): void
  addToBatch(sequence: number, first: number, tokens: Uint32Array, at: Uint32Array): Uint32Array
  decodeBatch(): Promise<void>
  sampleToken(index: number, sampler: NativeSampler): Promise<Token>
  sampleToken(
    index: number,
    sampler: NativeSampler,
    probabilities: boolean,
    confidence: boolean,
  ): Promise<NativeSample>
  disposeSequence(sequence: number): void
  removeTokenCellsFromSequence(sequence: number, start: number, end: number): boolean
  getSequenceKvCacheMinPosition(sequence: number): number
  setThreads(threads: number): void
}

export interface PassPart {
  readonly sequence: number
  readonly first: number
  readonly tokens: readonly Token[]
  /** The indexes of tokens after which a token is sampled. */
  readonly sampled: readonly number[]
}

export class NativeContext {
  readonly #addon: AddonContext
  readonly #threads: Tuning['threads'] | null
  readonly samplers: SamplerPool
  /** Settles when the first read of a pass has finished; `null` until that read begins. */
  #firstRead: Promise<unknown> | null = null

  /** Without `threads`, the number of threads is the one given to `setThreads`. */
  constructor(model: LlamaModel, context: LlamaContext, threads: Tuning['threads'] | null = null) {
    const { _ctx: addon } = context as unknown as { _ctx: AddonContext }
    const { _model: native, _llama: llama } = model as unknown as ModelInternals
    const { _bindings: bindings } = llama
    this.#addon = addon
    this.#threads = threads
    this.samplers = new SamplerPool(() => new bindings.AddonSampler(native))
  }

  setThreads(threads: number): void {
    this.#addon.setThreads(threads)
  }

  async evaluate(parts: readonly PassPart[]): Promise<readonly Uint32Array[]> {
    const count = parts.reduce((sum, { tokens }) => sum + tokens.length, 0)
    if (this.#threads !== null) {
      this.#addon.setThreads(count < manyTokens ? this.#threads.few : this.#threads.many)
    }
    this.#addon.initBatch(count)
    const indexes = parts.map(({ sequence, first, tokens, sampled }) =>
      this.#addon.addToBatch(sequence, first, Uint32Array.from(tokens), Uint32Array.from(sampled)),
    )
    await this.#addon.decodeBatch()
    this.#firstRead = null
    return indexes
  }

  async choose(index: number, sampler: NativeSampler): Promise<Token> {
    const token = await this.#read(sampler, () => this.#addon.sampleToken(index, sampler))
    if (token === -1) throw new Error('the model gave no token')
    return token
  }

  sample(
    index: number,
    sampler: NativeSampler,
    how: { readonly probabilities: boolean; readonly confidence: boolean },
  ): Promise<NativeSample> {
    const { probabilities, confidence } = how
    return this.#read(sampler, () =>
      this.#addon.sampleToken(index, sampler, probabilities, confidence),
    )
  }

  /** The first read sorts the results of the pass, so other reads wait for it. */
  #read<T>(sampler: NativeSampler, call: () => Promise<T>): Promise<T> {
    const first = this.#firstRead
    if (first !== null) return this.samplers.use(sampler, () => first.then(call))
    const result = this.samplers.use(sampler, call)
    this.#firstRead = result.catch(() => {})
    return result
  }

  /**
   * Keeps the first `count` tokens of the sequence. If the model cannot do that, removes all tokens
   * and returns `false`.
   */
  truncate(sequence: number, count: number, length: number): boolean {
    const isWhole = count > 0 && this.#addon.getSequenceKvCacheMinPosition(sequence) === 0
    if (isWhole && this.#addon.removeTokenCellsFromSequence(sequence, count, length)) return true
    this.#addon.disposeSequence(sequence)
    return false
  }
}

interface ModelInternals {
  readonly _model: unknown
  readonly _llama: {
    readonly _bindings: { readonly AddonSampler: new (model: unknown) => NativeSampler }
  }
}

export interface NativeSampler {
  applyConfig(config: SamplerConfig): void
  dispose(): void
}

/** Omitted options have no effect. Without `topK`, the candidates are not sorted. */
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

const maxPooled = 64
/** Only a changed seed restarts the random numbers, so two different seeds are applied. */
const resetSeeds = [0, 1]

/** Reuses samplers, because the garbage collector does not know how much memory they hold. */
export class SamplerPool {
  readonly #create: () => NativeSampler
  readonly #freeSamplers: NativeSampler[] = []
  readonly #busySamplers = new Set<NativeSampler>()

  constructor(create: () => NativeSampler) {
    this.#create = create
  }

  acquire(): NativeSampler {
    return this.#freeSamplers.pop() ?? this.#create()
  }

  /**
   * Puts a sampler back into the pool. Disposes of it instead if the pool is full. Also disposes of
   * a sampler that is still in use: a part of its step has failed.
   */
  release(sampler: NativeSampler): void {
    if (this.#busySamplers.has(sampler) || this.#freeSamplers.length >= maxPooled)
      return sampler.dispose()
    // Applying a configuration removes all settings that it omits.
    for (const seed of resetSeeds) sampler.applyConfig({ temperature: 0, seed })
    this.#freeSamplers.push(sampler)
  }

  async use<T>(sampler: NativeSampler, call: () => Promise<T>): Promise<T> {
    this.#busySamplers.add(sampler)
    try {
      return await call()
    } finally {
      this.#busySamplers.delete(sampler)
    }
  }
}
