/** One sampler for each remote caller. The callers request every sample. */

import type { ResourceSample, ResourceSampler } from './sampler.ts'

/** The first request sets the baseline. The last request closes the sampler. */
export type SampleStep = 'first' | 'next' | 'last'

export class NamedSamplers {
  readonly #create: () => ResourceSampler
  readonly #samplers = new Map<string, ResourceSampler>()

  constructor(create: () => ResourceSampler) {
    this.#create = create
  }

  /** Handles a request. Resolves with `null` for the first and the last request. */
  async handleRequest(name: string, step: SampleStep): Promise<ResourceSample | null> {
    let sampler = this.#samplers.get(name)
    if (step === 'last') {
      this.#samplers.delete(name)
      await sampler?.close()
      return null
    }
    if (sampler === undefined) {
      sampler = this.#create()
      this.#samplers.set(name, sampler)
      await sampler.prime()
    }
    return step === 'first' ? null : sampler.sample()
  }

  async close(): Promise<void> {
    await Promise.allSettled([...this.#samplers.values()].map((sampler) => sampler.close()))
  }
}
