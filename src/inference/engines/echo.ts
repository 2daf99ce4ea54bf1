/** An engine that returns the prompt: for tests and benchmarks. */

import { type Clock, systemClock } from '../../foundation/clock.ts'
import type {
  EngineCapacity,
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
  InferenceEngine,
  ModelFacts,
} from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import { type EchoResult, createEchoResult } from './echo/echo-result.ts'
import { toPieces, toTokenId } from './echo/echo-result.ts'

/** The latency, name and context length of the simulated model. */
export interface EchoEngineOptions {
  /** How long a batch takes. Default 0. */
  readonly latencyMs?: number
  /** Additional time for each request of a batch. Default 0. */
  readonly latencyPerPromptMs?: number
  readonly clock?: Clock
  /** Default `echo`. */
  readonly modelName?: string
  /** Tokens of prompt and answer. Default 8192. */
  readonly contextLength?: number
}

/**
 * Deterministic: the result is the prompt, or the last user message. Without latency, results are
 * complete before `generate` returns. Seeds and temperatures have no effect.
 */
export function createEchoEngine(options: EchoEngineOptions = {}): InferenceEngine {
  return new EchoEngine(options)
}

class EchoEngine implements InferenceEngine {
  readonly capacity: EngineCapacity = { admits: 'batch', slots: 65_536 }
  readonly #facts: ModelFacts
  readonly #latencyMs: number
  readonly #latencyPerPromptMs: number
  readonly #clock: Clock
  readonly #open = new Set<EchoRun>()
  #isClosed = false

  constructor(options: EchoEngineOptions) {
    const { modelName = 'echo', contextLength = 8192, clock = systemClock } = options
    this.#facts = { name: modelName, contextLength, hasChatTemplate: true }
    this.#latencyMs = options.latencyMs ?? 0
    this.#latencyPerPromptMs = options.latencyPerPromptMs ?? 0
    this.#clock = clock
  }

  async start(): Promise<ModelFacts> {
    if (this.#isClosed) throw closed()
    return this.#facts
  }

  async generate(
    requests: readonly GenerationRequest[],
    listener: GenerationListener,
  ): Promise<void> {
    const waitMs = this.#latencyMs + this.#latencyPerPromptMs * requests.length
    const open: EchoRun[] = []
    for (const request of requests) {
      const reply = new EchoRun(request, listener, this.#facts.contextLength)
      if (this.#isClosed) reply.end({ kind: 'failed', error: closed() })
      else if (waitMs === 0) reply.send()
      if (!reply.hasEnded) open.push(reply)
    }
    if (open.length === 0) return
    const all = Promise.all(open.map((reply) => reply.watch()))
    for (const reply of open) this.#open.add(reply)
    const answer = (): void => {
      for (const reply of open) reply.send()
    }
    const cancel = waitMs === 0 ? undefined : this.#clock.after(waitMs, answer)
    await all
    cancel?.()
    for (const reply of open) this.#open.delete(reply)
  }

  async tokenize(text: string): Promise<readonly number[]> {
    return toPieces(text).map(toTokenId)
  }

  lost(): Promise<string> {
    return new Promise(() => {})
  }

  async close(): Promise<void> {
    this.#isClosed = true
    for (const reply of this.#open) reply.end({ kind: 'failed', error: closed() })
  }
}

const closed = (): Error => inferenceError('closing', 'the echo engine was closed')

/** One running request; it waits only for its own reader. */
class EchoRun {
  readonly #request: GenerationRequest
  readonly #listener: GenerationListener
  readonly #contextLength: number
  #ended: PromiseWithResolvers<void> | null = null
  #answer: EchoResult | null = null
  #next = 0
  hasEnded = false

  constructor(request: GenerationRequest, listener: GenerationListener, contextLength: number) {
    this.#request = request
    this.#listener = listener
    this.#contextLength = contextLength
  }

  /** Cancels the request when its signal aborts; resolves when it has ended. */
  watch(): Promise<void> {
    this.#ended = Promise.withResolvers()
    const { signal } = this.#request
    if (signal.aborted) this.handleEvent()
    else signal.addEventListener('abort', this)
    return this.#ended.promise
  }

  handleEvent(): void {
    this.end({ kind: 'canceled' })
  }

  /** Sends the rest of the result, until the reader asks for a pause. */
  send(): void {
    const { id, signal } = this.#request
    while (!this.hasEnded) {
      if (signal.aborted) return this.handleEvent()
      try {
        this.#answer ??= createEchoResult(this.#request, this.#contextLength)
      } catch (error) {
        return this.end({ kind: 'failed', error })
      }
      const { deltas, finishReason, usage } = this.#answer
      const delta = deltas[this.#next++]
      if (delta === undefined) return this.end({ kind: 'done', finishReason, usage })
      const paused = this.#listener.delta(id, delta)
      if (paused === undefined) continue
      const proceed = (): void => this.send()
      paused.then(proceed, proceed)
      return
    }
  }

  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    if (this.#ended !== null) this.#request.signal.removeEventListener('abort', this)
    this.#listener.end(this.#request.id, end)
    this.#ended?.resolve()
  }
}
