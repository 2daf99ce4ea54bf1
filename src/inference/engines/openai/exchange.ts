/** One POST of a request and the stream that answers it. Whether to try again others decide. */

import { boundedWait, unlessAborted } from '../../../foundation/promises.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { InferenceError } from '../../../foundation/errors.ts'
import type { FinishReason, GenerationDelta, Usage } from '../../generation/inference-engine.ts'
import { inferenceError } from '../../generation/inference-errors.ts'
import { AnswerChunks } from './answer-chunks.ts'
import { eventData } from './event-data.ts'
import type { UpstreamAnswer, UpstreamLink } from './upstream-link.ts'
import { type Refusal, toRefusal } from './upstream-refusal.ts'

export type Exchange =
  | {
      readonly kind: 'done'
      readonly finishReason: FinishReason
      /** `null` when the server told none. */
      readonly usage: Usage | null
      readonly text: string
    }
  | ({ readonly kind: 'refused' } & Refusal)
  /** The connection did not come about, or ended before the answer did. */
  | { readonly kind: 'broken'; readonly cause: unknown; readonly hasDelta: boolean }

export interface ExchangeOptions {
  readonly link: UpstreamLink
  readonly path: string
  /** JSON. */
  readonly body: () => string
  /** Ends it at once, also while a slow reader is waited for. */
  readonly signal: AbortSignal
  readonly deliver: (delta: GenerationDelta) => Promise<void> | undefined
  readonly clock: Clock
}

/** How long a server may take to end the body after the last event. */
const partingMs = 1000

/** Rejects with the signal's reason, and with nothing else. */
export async function exchange(options: ExchangeOptions): Promise<Exchange> {
  const { link, path, body, signal } = options
  signal.throwIfAborted()
  const reader = new AnswerReader(options)
  try {
    const answer = await link.post(path, body(), signal)
    if (answer.status === 200) return await reader.read(answer)
    const refusal = toRefusal(
      answer.status,
      await answer.text(),
      answer.retryAfter,
      options.clock.now(),
    )
    return { kind: 'refused', ...refusal }
  } catch (error) {
    signal.throwIfAborted()
    if (InferenceError.isInstance(error)) return { kind: 'refused', error, waitMs: null }
    return { kind: 'broken', cause: error, hasDelta: reader.hasDelta }
  }
}

class AnswerReader {
  hasDelta = false
  readonly #options: ExchangeOptions
  readonly #chunks = new AnswerChunks()
  #text = ''

  constructor(options: ExchangeOptions) {
    this.#options = options
  }

  async read(answer: UpstreamAnswer): Promise<Exchange> {
    const events = eventData(answer.bytes)
    try {
      await this.#readTo('[DONE]', events)
    } catch (error) {
      answer.discard()
      throw error
    }
    // The end of the body frees its connection for another request.
    boundedWait(this.#options.clock, partingMs, exhaust(events)).catch(() => answer.discard())
    const { finishReason, usage } = this.#chunks
    if (finishReason === null) {
      throw inferenceError('EngineContractError', 'the server ended an answer without a reason')
    }
    const calls = this.#chunks.calls()
    if (calls !== null) await this.#deliver(calls)
    return { kind: 'done', finishReason, usage, text: this.#text }
  }

  async #readTo(last: string, events: AsyncGenerator<string>): Promise<void> {
    for (;;) {
      const { value: data, done } = await events.next()
      // One read may bring many events, of which the reader has had enough.
      this.#options.signal.throwIfAborted()
      if (done === true || data === last) return
      const delta = this.#chunks.take(data)
      if (delta !== null) await this.#deliver(delta)
    }
  }

  async #deliver(delta: GenerationDelta): Promise<void> {
    this.hasDelta = true
    this.#text += delta.text
    const held = this.#options.deliver(delta)
    if (held !== undefined) await unlessAborted(this.#options.signal, held)
  }
}

async function exhaust(events: AsyncGenerator<string>): Promise<void> {
  while ((await events.next()).done !== true);
}
