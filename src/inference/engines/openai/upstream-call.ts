/** Posts a request once and reads the response, usually a stream. Does not retry. */

import { createParser } from 'eventsource-parser'
import type { Clock } from '../../../foundation/clock.ts'
import { InferenceError } from '../../../foundation/errors.ts'
import { boundedWait, unlessAborted } from '../../../foundation/promises.ts'
import { TurnBudget } from '../../../runtime/turn-budget.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassedDelta } from '../../generation/pass-through.ts'
import { inferenceCodeOf, inferenceError } from '../../generation/inference-errors.ts'
import { ResponseChunks } from './response-chunks.ts'
import type { UpstreamLink, UpstreamResponse } from './upstream-link.ts'
import { readRefusal, type ReadRefusal } from './upstream-refusal.ts'

/** How a call ended. */
export type CallOutcome =
  | {
      readonly kind: 'done'
      readonly finishReason: FinishReason
      /** `null` if the server reported no usage. */
      readonly usage: Usage | null
      readonly text: string
      /** Fields that arrived after the last delta. */
      readonly fields: AnswerFields | undefined
    }
  | ({ readonly kind: 'refused' } & ReadRefusal)
  /** The connection failed or was closed before the end of the response. */
  | { readonly kind: 'broken'; readonly cause: unknown; readonly hasDelta: boolean }

export interface UpstreamCallOptions {
  readonly link: UpstreamLink
  readonly path: string
  /** Creates the JSON of the request. */
  readonly body: () => string
  /** Aborts the call, even while it waits for a slow reader. */
  readonly signal: AbortSignal
  readonly deliver: (delta: PassedDelta) => Promise<void> | undefined
  readonly clock: Clock
  /** Whether the caller will not retry, so that the text of a refusal is needed. */
  readonly isLast: boolean
}

/** How long the server may take to end the response body after the last event. */
const bodyEndMs = 1000
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
    if (InferenceError.isInstance(error)) return refusedWith(error)
    return { kind: 'broken', cause: error, hasDelta: reader.hasDelta }
  }
}

const refusedWith = (error: InferenceError): CallOutcome => ({
  kind: 'refused',
  error,
  waitMs: null,
  leave: () => {},
})

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
    if (response.isJson) await this.#take(await response.text())
    else await this.#readEvents(response)
    // The answer has no text, so no delta has reported the ignored fields yet.
    if (this.#ignored.length > 0) await this.#deliver({ text: '' })
    const { finishReason, usage } = this.#chunks
    if (finishReason === null) {
      throw inferenceError(
        'EngineContractError',
        'the server ended a response without a finish reason',
      )
    }
    return { kind: 'done', finishReason, usage, text: this.#text, fields: this.#chunks.rest() }
  }

  async #readEvents(response: UpstreamResponse): Promise<void> {
    const events = eventData(response.bytes)
    // Reads the body to its end, so that another request can reuse the connection.
    const free = (): Promise<void> =>
      boundedWait(this.#options.clock, bodyEndMs, exhaust(events)).catch(() => response.discard())
    try {
      await this.#readTo('[DONE]', events)
    } catch (error) {
      // After an error that the server reports, the body ends soon.
      if (!this.#options.signal.aborted && isReported(error)) void free()
      else response.discard()
      throw error
    }
    void free()
  }

  async #readTo(last: string, events: AsyncGenerator<string>): Promise<void> {
    // A server may send a whole answer at once. The budget lets other requests proceed meanwhile.
    const budget = new TurnBudget(this.#options.clock, eventsPerTurn)
    for (;;) {
      if (budget.left === 0) await budget.nextTurn()
      budget.spend()
      const { value: data, done } = await events.next()
      // One read may return many events, and the request may be aborted between two of them.
      this.#options.signal.throwIfAborted()
      if (done === true || data === last) return
      await this.#take(data)
    }
  }

  async #take(data: string): Promise<void> {
    const delta = this.#chunks.take(data)
    if (delta !== null) await this.#deliver(delta)
  }

  async #deliver(delta: PassedDelta): Promise<void> {
    this.hasDelta = true
    this.#text += delta.text
    const ignored = this.#ignored
    this.#ignored = []
    const held = this.#options.deliver(ignored.length === 0 ? delta : { ...delta, ignored })
    if (held !== undefined) await unlessAborted(this.#options.signal, held)
  }
}

const isReported = (error: unknown): boolean =>
  ![undefined, 'EngineContractError'].includes(inferenceCodeOf(error))

async function exhaust(events: AsyncGenerator<string>): Promise<void> {
  while ((await events.next()).done !== true);
}

/** The maximum number of characters of an event. Normal events contain a few tokens. */
const maxEventChars = 8 << 20
/** The maximum number of characters of all events; above the longest answers with logprobs. */
const maxAnswerChars = 256 << 20

/**
 * The data of server-sent events, in order. Reads more bytes only when the caller has taken all
 * events. Throws `EngineContractError` if an event or the whole stream is too long.
 */
export async function* eventData(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder()
  const ready: string[] = []
  let isEndless = false
  let chars = 0
  /** The number of bytes since the last event. */
  let idle = 0
  const parser = createParser({
    maxBufferSize: maxEventChars,
    onEvent: ({ data }) => {
      ready.push(data)
      chars += data.length
      idle = 0
    },
    onError: ({ type }) => {
      isEndless ||= type === 'max-buffer-size-exceeded'
    },
  })
  for await (const chunk of bytes) {
    idle += chunk.length
    parser.feed(decoder.decode(chunk, { stream: true }))
    yield* ready.splice(0)
    if (chars > maxAnswerChars) {
      throw inferenceError('EngineContractError', 'the server sent an answer without an end')
    }
    // The limit also applies to data without events, such as an HTML page.
    if (isEndless || idle > maxEventChars) {
      throw inferenceError('EngineContractError', 'the server sent an event without an end')
    }
  }
}
