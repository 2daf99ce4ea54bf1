/** What a case of the engine contract stands on: an engine, requests, and what came of them. */

import assert from 'node:assert/strict'
import { systemClock } from '../foundation/clock.ts'
import type {
  GenerationEnd,
  GenerationInput,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
  Sampling,
} from '../inference/generation/inference-engine.ts'
import { GenerationRecorder } from './generation-recorder.ts'
import { greedySampling } from './greedy-sampling.ts'

/** A request that can be aborted. */
export interface Asked extends GenerationRequest {
  readonly abort: () => void
}

/** One for each case. */
export class EngineStage {
  readonly engine: InferenceEngine
  readonly facts: ModelFacts
  readonly prompt: string
  readonly maxTokens: number
  readonly recorder = new GenerationRecorder()
  readonly #asked = new Set<string>()

  constructor(engine: InferenceEngine, facts: ModelFacts, prompt: string, maxTokens: number) {
    this.engine = engine
    this.facts = facts
    this.prompt = prompt
    this.maxTokens = maxTokens
  }

  /** A new request; a string is text to be continued, which needs no template. */
  request(input: GenerationInput | string, sampling: Partial<Sampling> = {}): Asked {
    const leaving = new AbortController()
    const id = `request-${this.#asked.size}`
    this.#asked.add(id)
    return {
      id,
      input: typeof input === 'string' ? { kind: 'text', text: input } : input,
      sampling: { ...greedySampling, maxTokens: this.maxTokens, ...sampling },
      signal: leaving.signal,
      abort: () => leaving.abort(),
    }
  }

  /** As many at a time as the engine takes; resolves when it is done with all. */
  async ask(...requests: readonly Asked[]): Promise<void> {
    const { slots } = this.engine.capacity
    for (let at = 0; at < requests.length; at += slots) {
      const some = requests.slice(at, at + slots)
      await this.engine.generate(some, this.recorder)
      for (const { id } of some) assert.ok(this.recorder.hasEnded(id), `${id} has no end`)
    }
  }

  /** The end of a request that must have been answered. */
  done(id: string): Extract<GenerationEnd, { kind: 'done' }> {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'done', `${id} was not answered: ${describeEnd(end)}`)
    return end
  }

  /** The code of the error that a request must have ended with. */
  failure(id: string): unknown {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'failed', `${id} did not fail: ${describeEnd(end)}`)
    const { error } = end
    return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined
  }

  /** What holds in every case: one end for each request, the last of all that came. */
  assertSound(): void {
    for (const id of this.recorder.ids) {
      const { ends, late } = this.recorder.of(id)
      assert.ok(this.#asked.has(id), `nobody asked for ${id}`)
      assert.equal(ends.length, 1, `${id} has ${ends.length} ends`)
      assert.equal(late, 0, `${id} has text after its end`)
    }
  }

  /** Long enough for calls that should not come. */
  async settle(): Promise<void> {
    for (let at = 0; at < 5; at++) await nextTurn()
  }
}

/** Resolves in the next turn of the event loop. */
export function nextTurn(): Promise<void> {
  return new Promise((resolve) => systemClock.nextTurn(resolve))
}

function describeEnd(end: GenerationEnd | undefined): string {
  return end?.kind === 'failed' ? `failed with ${String(end.error)}` : (end?.kind ?? 'no end')
}
