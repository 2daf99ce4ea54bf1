/** Requests for an engine, and a listener that writes down what comes of them. */

import type {
  GenerationDelta,
  GenerationEnd,
  GenerationInput,
  GenerationListener,
  GenerationRequest,
  Sampling,
} from '../../../src/inference/generation/inference-engine.ts'
import { greedySampling } from '../../../src/testing/engine-contract.ts'

/** As most people ask: a little at random. */
const usual = { ...greedySampling, maxTokens: 100, temperature: 0.5, topP: 0.95 }

export function toRequest(
  input: GenerationInput | string,
  sampling: Partial<Sampling> = {},
  more: Partial<Pick<GenerationRequest, 'id' | 'signal'>> = {},
): GenerationRequest {
  return {
    id: 'r1',
    signal: new AbortController().signal,
    ...more,
    input:
      typeof input === 'string'
        ? { kind: 'chat', messages: [{ role: 'user', content: input }] }
        : input,
    sampling: { ...usual, ...sampling },
  }
}

export class RecordingGeneration implements GenerationListener {
  readonly deltas: (GenerationDelta & { readonly id: string })[] = []
  readonly ends: (GenerationEnd & { readonly id: string })[] = []
  readonly #first = Promise.withResolvers<void>()
  /** The return value of `delta`: a promise pauses the generation. */
  hold: Promise<void> | undefined

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    this.deltas.push({ id, ...delta })
    this.#first.resolve()
    return this.hold
  }

  end(id: string, end: GenerationEnd): void {
    this.ends.push({ id, ...end })
  }

  /** Resolves at the first delta. */
  get begun(): Promise<void> {
    return this.#first.promise
  }

  textOf(id = 'r1'): string {
    return this.deltas.flatMap((delta) => (delta.id === id ? delta.text : [])).join('')
  }
}
