/** Computes the embeddings of an embedding model, one text after the other. */

import { messageOf } from '../../../foundation/errors.ts'
import type { Failure, LlamaRequest, RequestUpdate } from './protocol.ts'
import type { Token, Vocabulary } from './runtime.ts'

export interface EmbeddingRuntime {
  readonly contextLength: number
  readonly vocabulary: Vocabulary
  /** Returns a unit vector. */
  embed(input: string | readonly Token[]): Promise<Float32Array>
  /** Counts the tokens, including those that the model adds around a text. */
  countTokens(input: string | readonly Token[]): number
}

export interface EmbeddingLoopOptions {
  readonly runtime: EmbeddingRuntime
  readonly onUpdate: (update: RequestUpdate) => void
  /** Called after every text. The loop awaits the returned promise. */
  readonly onStep: (isLast: boolean) => Promise<void> | undefined
}

export class EmbeddingLoop {
  readonly #options: EmbeddingLoopOptions
  readonly #waiting = new Map<string, LlamaRequest>()
  #isRunning = false

  constructor(options: EmbeddingLoopOptions) {
    this.#options = options
  }

  add(requests: readonly LlamaRequest[]): void {
    for (const request of requests) this.#waiting.set(request.id, request)
    if (this.#isRunning) return
    this.#isRunning = true
    void this.#run()
  }

  /** Cancels a waiting request. A text that is already being computed is completed. */
  cancel(id: string): void {
    if (this.#waiting.delete(id)) this.#options.onUpdate({ id, end: { kind: 'canceled' } })
  }

  async #run(): Promise<void> {
    const { onUpdate, onStep } = this.#options
    while (this.#waiting.size > 0) {
      for (const request of this.#waiting.values()) {
        this.#waiting.delete(request.id)
        onUpdate(await this.#embed(request))
        await onStep(this.#waiting.size === 0)
      }
    }
    this.#isRunning = false
  }

  async #embed({ id, input }: LlamaRequest): Promise<RequestUpdate> {
    const fail = (failure: Failure): RequestUpdate => ({ id, end: { kind: 'failed', failure } })
    if (input.kind !== 'text' || input.wantsEmbedding !== true) {
      return fail({ code: 'unsupported', message: 'an embedding model generates no text' })
    }
    const { runtime } = this.#options
    const { contextLength, vocabulary } = runtime
    const content = input.tokens ?? input.text
    const unknown = input.tokens?.find((token) => token < 0 || token >= vocabulary.size)
    if (unknown !== undefined) {
      const message = `Invalid 'input': the model has no token ${unknown}.`
      return fail({ code: 'unsupported', message, param: 'input', clientCode: 'invalid_value' })
    }
    try {
      const promptTokens = runtime.countTokens(content)
      if (promptTokens >= contextLength) {
        const message = `the input has ${promptTokens} tokens, and the context ${contextLength}`
        return fail({ code: 'context_length_exceeded', message, param: 'input' })
      }
      const embedding = await runtime.embed(content)
      const usage = { promptTokens, completionTokens: 0 }
      const end = { kind: 'done', finishReason: 'stop', usage } as const
      return { id, delta: { text: '', promptTokens, embedding }, end }
    } catch (error) {
      return fail({ code: 'engine_error', message: messageOf(error) })
    }
  }
}
