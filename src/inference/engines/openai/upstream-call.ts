/** Sends a POST request once and reads the response, which is usually a stream. Does not retry. */

import { createParser } from 'eventsource-parser'
import type { Clock } from '../../../foundation/clock.ts'
import { InferenceError } from '../../../foundation/errors.ts'
import { boundedWait, unlessAborted } from '../../../foundation/promises.ts'
import { TurnBudget } from '../../../runtime/turn-budget.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassThroughDelta } from '../../generation/pass-through.ts'
import { toInferenceCode, inferenceError } from '../../generation/inference-errors.ts'
import { ResponseChunks } from './response-chunks.ts'
import type { UpstreamLink, UpstreamResponse } from './upstream-link.ts'
import { readRefusal, type PendingRefusal } from './upstream-refusal.ts'

export type CallOutcome =
  | {
      readonly kind: 'done'
      readonly finishReason: FinishReason
      readonly usage: Usage | null
      readonly text: string
      readonly fields: AnswerFields | undefined
    }
  | ({ readonly kind: 'refused' } & PendingRefusal)
  | { readonly kind: 'broken'; readonly cause: unknown; readonly hasDelta: boolean }

export interface UpstreamCallOptions {
  readonly link: UpstreamLink
  readonly path: string
  readonly body: () => string
  /** Aborts the call, even while it waits for a slow reader. */
  readonly signal: AbortSignal
  readonly deliver: (delta: PassThroughDelta) => Promise<void> | undefined
  readonly clock: Clock
  /** Whether the caller will not retry. If so, the text of a refusal is read. */
  readonly isLastAttempt: boolean
}

/** How long the server may take to end the response body after the last event. */
const bodyEndTimeoutMs = 1000
const eventsPerTurn = 100

/** Calls the server once. Rejects only with the signal's reason. */
export async function callUpstream(options: UpstreamCallOptions): Promise<CallOutcome> {
  const { link, path, body, signal } = options
  signal.throwIfAborted()
  const reader = new ResponseReader(options)
  try {
    const response = await link.post(path, body(), signal)
    if (response.status === 200) return await reader.read(response)
    const refusal = await readRefusal(response, options)
    signal.throwIfAborted()
    return { kind: 'refused', ...refusal }
  } catch (error) {
    signal.throwIfAborted()
    if (!InferenceError.isInstance(error)) {
      return { kind: 'broken', cause: error, hasDelta: reader.hasDelta }
    }
    return { kind: 'refused', error, waitMs: null, discard: () => {} }
  }
}

class ResponseReader {
  hasDelta = false
  readonly #options: UpstreamCallOptions
  readonly #chunks = new ResponseChunks()
  #text = ''
  #ignored: readonly string[] = []

  constructor(options: UpstreamCallOptions) {
    this.#options = options
  }

  async read(response: UpstreamResponse): Promise<CallOutcome> {
    this.#ignored = response.ignored
    if (response.isJson) await this.#handleData(await response.text())
    else await this.#readEvents(response)
    // Reports the ignored fields if there was no text, because no delta has reported them yet.
    if (this.#ignored.length > 0) await this.#deliver({ text: '' })
    const { finishReason, usage } = this.#chunks
    if (finishReason === null) {
      throw inferenceError(
        'EngineContractError',
        'the server ended a response without a finish reason',
      )
    }
    return { kind: 'done', finishReason, usage, text: this.#text, fields: this.#chunks.takeRest() }
  }

  async #readEvents(response: UpstreamResponse): Promise<void> {
    const events = readEventData(response.bytes)
    // Reads the body to its end, so that another request can reuse the connection.
    const releaseConnection = (): Promise<void> =>
      boundedWait(this.#options.clock, bodyEndTimeoutMs, drainEvents(events)).catch(() =>
        response.discard(),
      )
    try {
      await this.#handleEvents(events)
    } catch (error) {
      // A server that reports an error ends the body soon, so the connection can be reused.
      if (!this.#options.signal.aborted && isServerError(error)) void releaseConnection()
      else response.discard()
      throw error
    }
    void releaseConnection()
  }

  async #handleEvents(events: AsyncGenerator<string>): Promise<void> {
    // Lets other requests proceed, because a server may send a whole answer in one read.
    const budget = new TurnBudget(this.#options.clock, eventsPerTurn)
    for (;;) {
      if (budget.left === 0) await budget.nextTurn()
      budget.spend()
      const { value: data, done } = await events.next()
      this.#options.signal.throwIfAborted()
      if (done === true || data === '[DONE]') return
      await this.#handleData(data)
    }
  }

  async #handleData(data: string): Promise<void> {
    const delta = this.#chunks.read(data)
    if (delta !== null) await this.#deliver(delta)
  }

  async #deliver(delta: PassThroughDelta): Promise<void> {
    this.hasDelta = true
    this.#text += delta.text
    const ignored = this.#ignored
    this.#ignored = []
    const readerWait = this.#options.deliver(ignored.length === 0 ? delta : { ...delta, ignored })
    if (readerWait !== undefined) await unlessAborted(this.#options.signal, readerWait)
  }
}

const isServerError = (error: unknown): boolean =>
  ![undefined, 'EngineContractError'].includes(toInferenceCode(error))

async function drainEvents(events: AsyncGenerator<string>): Promise<void> {
  while ((await events.next()).done !== true);
}

/** The maximum number of characters in an event. Normal events contain a few tokens. */
const maxEventChars = 8 << 20
/** The maximum length of an answer. Even long answers with log probabilities are shorter. */
const maxAnswerChars = 256 << 20

/**
 * Yields the data of each event. Reads more bytes only when all events are consumed. Throws if an
 * event or the stream is too long.
 */
export async function* readEventData(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  const ready: string[] = []
  let isEndless = false
  let chars = 0
  let bytesSinceEvent = 0
  const parser = createParser({
    maxBufferSize: maxEventChars,
    onEvent: ({ data }) => {
      ready.push(data)
      chars += data.length
      bytesSinceEvent = 0
    },
    onError: ({ type }) => {
      isEndless ||= type === 'max-buffer-size-exceeded'
    },
  })
  for await (const chunk of bytes) {
    bytesSinceEvent += chunk.length
    parser.feed(decoder.decode(chunk, { stream: true }))
    yield* ready.splice(0)
    if (chars > maxAnswerChars) {
      throw inferenceError('EngineContractError', 'the server sent an answer without an end')
    }
    // This also limits data without events, such as an HTML page.
    if (isEndless || bytesSinceEvent > maxEventChars) {
      throw inferenceError('EngineContractError', 'the server sent an event without an end')
    }
  }
}
