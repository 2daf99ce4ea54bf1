/** What a case of the engine contract uses: an engine, requests, and a recorder. */

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
export interface AbortableRequest extends GenerationRequest {
  readonly abort: () => void
}

/** Created anew for each case. */
export class EngineFixture {
  readonly engine: InferenceEngine
  readonly facts: ModelFacts
  readonly prompt: string
  readonly maxTokens: number
  readonly recorder = new GenerationRecorder()
  readonly #ids = new Set<string>()

  constructor(engine: InferenceEngine, facts: ModelFacts, prompt: string, maxTokens: number) {
    this.engine = engine
    this.facts = facts
    this.prompt = prompt
    this.maxTokens = maxTokens
  }

  /** A new request; a string is raw text, which needs no chat template. */
  request(input: GenerationInput | string, sampling: Partial<Sampling> = {}): AbortableRequest {
    const controller = new AbortController()
    const id = `request-${this.#ids.size}`
    this.#ids.add(id)
    return {
      id,
      input: typeof input === 'string' ? { kind: 'text', text: input } : input,
      sampling: { ...greedySampling, maxTokens: this.maxTokens, ...sampling },
      signal: controller.signal,
      abort: () => controller.abort(),
    }
  }

  /** Sends as many requests at a time as the engine has slots; resolves when all have ended. */
  async generate(...requests: readonly AbortableRequest[]): Promise<void> {
    const { slots } = this.engine.capacity
    for (let at = 0; at < requests.length; at += slots) {
      const some = requests.slice(at, at + slots)
      await this.engine.generate(some, this.recorder)
      for (const { id } of some) assert.ok(this.recorder.hasEnded(id), `${id} has no end`)
    }
  }

  /** The end of a request that must be done. */
  done(id: string): Extract<GenerationEnd, { kind: 'done' }> {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'done', `${id} is not done: ${describeEnd(end)}`)
    return end
  }

  /** The error code of a request that must have failed. */
  failure(id: string): unknown {
    const [end] = this.recorder.of(id).ends
    assert.ok(end?.kind === 'failed', `${id} did not fail: ${describeEnd(end)}`)
    const { error } = end
    return typeof error === 'object' && error !== null && 'code' in error ? error.code : undefined
  }

  /** Must hold in every case: each request has one end, and no text after it. */
  assertOneEndEach(): void {
    for (const id of this.recorder.ids) {
      const { ends, late } = this.recorder.of(id)
      assert.ok(this.#ids.has(id), `${id} is no request of this test`)
      assert.equal(ends.length, 1, `${id} has ${ends.length} ends`)
      assert.equal(late, 0, `${id} has text after its end`)
    }
  }

  /** Waits a few turns of the event loop for calls that must not come. */
  async settle(): Promise<void> {
    for (let turn = 0; turn < 5; turn++) {
      await new Promise<void>((resolve) => systemClock.nextTurn(resolve))
    }
  }
}

function describeEnd(end: GenerationEnd | undefined): string {
  return end?.kind === 'failed' ? `failed with ${String(end.error)}` : (end?.kind ?? 'no end')
}
