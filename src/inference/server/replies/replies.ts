/** Generates the text for an HTTP request, and sends it as one JSON body or as a stream. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import { addDetails } from '../../generation/fields/answer-fields.ts'
import { ignoredHeader } from '../../generation/fields/request-fields.ts'
import type { GenerationDelta, Usage, WireFields } from '../../generation/inference-engine.ts'
import type {
  GenerationResult,
  ProgressListener,
  PromptRequest,
  TextGenerator,
} from '../../generation/text-generator.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'
import type { TextRequest } from '../requests/request-reader.ts'
import type { ReplyShape } from './reply-shape.ts'

/** One prompt request for each choice of the response; each further choice has the next seed. */
export function toPromptRequests(
  request: TextRequest,
  signal: AbortSignal,
): readonly PromptRequest[] {
  const { inputs, n, sampling, priority, timeoutSeconds } = request
  const { seed } = sampling
  return inputs.flatMap((input) =>
    Array.from({ length: n }, (_, at) => ({
      input,
      sampling: typeof seed === 'number' && at > 0 ? { ...sampling, seed: seed + at } : sampling,
      priority,
      timeoutSeconds,
      signal,
      isBounded: true,
      taskId: null,
    })),
  )
}

/** Replies with one JSON body. */
export async function sendWholeReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  shape: ReplyShape,
): Promise<void> {
  const results = await generateAll(exchange, request, (prompt) => generator.generate(prompt))
  const body = shape.whole(results, totalUsage(results, request.n))
  const ignored = results.flatMap((result) => result.ignored ?? [])
  exchange.sendJson(200, body, ignoredHeaders(request, ignored))
}

/**
 * Replies with a stream. The head is sent with the first text: a failure before that rejects, so
 * that it gets its own status; a later failure becomes an event of the stream.
 */
export async function sendStreamedReply(
  generator: TextGenerator,
  exchange: HttpExchange,
  request: TextRequest,
  shape: ReplyShape,
  options: Omit<SseWriterOptions, 'headers'>,
): Promise<void> {
  const headers = (ignored: readonly string[]): readonly string[] =>
    ignoredHeaders(request, ignored)
  const writer = new SseWriter(exchange, { ...options, headers })
  try {
    const results = await generateAll(exchange, request, async (prompt, index) => {
      const choice = new StreamedChoice(writer, shape, index)
      const result = await generator.generate(prompt, choice)
      choice.finish(result)
      return result
    })
    if (request.includesUsage) void writer.send(shape.usage(totalUsage(results, request.n)))
  } catch (error) {
    if (!exchange.response.headersSent) throw error
    void writer.send(JSON.stringify(exchange.errorBody(exchange.explain(error))))
  }
  writer.end()
}

/** Writes the events of one choice. */
class StreamedChoice implements ProgressListener {
  readonly #writer: SseWriter
  readonly #shape: ReplyShape
  readonly #index: number
  #isOpen = false
  #hasText = false
  #toolCalls = 0
  /** Whether calls arrive in pieces; then no complete calls have to be sent at the end. */
  #hasPieces = false

  constructor(writer: SseWriter, shape: ReplyShape, index: number) {
    this.#writer = writer
    this.#shape = shape
    this.#index = index
  }

  delta(delta: GenerationDelta): Promise<void> | undefined {
    this.#open(delta)
    this.#hasText ||= delta.text !== ''
    this.#toolCalls += delta.toolCalls?.length ?? 0
    this.#hasPieces ||= delta.toolCallPieces !== undefined
    return this.#writer.send(this.#shape.delta(this.#index, delta), delta.ignored)
  }

  /** Sends output that no delta contained, such as a refusal instead of the result, and the end. */
  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = this.#hasPieces ? [] : result.toolCalls.slice(this.#toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.delta({ text, toolCalls })
    this.#open()
    const { finishReason, lastFields } = result
    void this.#writer.send(this.#shape.closing(this.#index, finishReason, lastFields))
  }

  #open(first?: GenerationDelta): void {
    if (this.#isOpen) return
    this.#isOpen = true
    const opening = this.#shape.opening(this.#index, first)
    if (opening !== undefined) void this.#writer.send(opening, first?.ignored)
  }
}

/** All results, or the first failure, which cancels the other choices. */
async function generateAll(
  exchange: HttpExchange,
  request: TextRequest,
  generate: (prompt: PromptRequest, index: number) => Promise<GenerationResult>,
): Promise<readonly GenerationResult[]> {
  const prompts = toPromptRequests(request, exchange.signal)
  try {
    return await Promise.all(prompts.map(async (prompt, index) => generate(prompt, index)))
  } catch (error) {
    if (prompts.length > 1) exchange.abort('another choice of the request failed')
    throw error
  }
}

/** Several choices for one prompt count the prompt's tokens once. */
function totalUsage(results: readonly GenerationResult[], n: number): Usage {
  const [first] = results
  if (results.length === 1 && first !== undefined) return first.usage
  let [promptTokens, completionTokens] = [0, 0]
  let details: WireFields | undefined
  for (const [at, { usage }] of results.entries()) {
    if (at % n === 0) promptTokens += usage.promptTokens
    completionTokens += usage.completionTokens
    const { prompt_tokens_details: _, ...rest } = usage.details ?? {}
    const counted = at % n === 0 ? usage.details : rest
    if (counted !== undefined) details = addDetails(details ?? {}, counted)
  }
  return details === undefined
    ? { promptTokens, completionTokens }
    : { promptTokens, completionTokens, details }
}

/**
 * The header `x-tutti-ignored-fields`, encoded so that no field name can break it. `more` has the
 * fields that the server behind the engine ignored.
 */
export function ignoredHeaders(
  { ignored }: Pick<TextRequest, 'ignored'>,
  more: readonly string[] = [],
): readonly string[] {
  if (ignored.length + more.length === 0) return []
  const max = 32
  const names = [...new Set([...ignored, ...more])]
    .slice(0, max)
    .map((name) => encodeURIComponent(name.slice(0, 64).toWellFormed()))
    .map((name) => name.replaceAll('%5B', '[').replaceAll('%5D', ']'))
  return [ignoredHeader, names.join(', ')]
}

interface SseWriterOptions {
  readonly clock: Clock
  /** How many bytes may be buffered before `send` returns a promise that delays its caller. */
  readonly bufferBytes: number
  /**
   * Additional headers of the response, given the fields that the server behind the engine ignored.
   */
  readonly headers: (ignored: readonly string[]) => readonly string[]
}

const eventStreamHeaders: readonly string[] = [
  'content-type',
  'text/event-stream; charset=utf-8',
  // Keeps nginx from buffering the events.
  'x-accel-buffering',
  'no',
]

/**
 * Writes at most once per turn of the event loop; the first event also sends the response's head.
 */
class SseWriter {
  readonly #exchange: HttpExchange
  readonly #response: ServerResponse
  readonly #options: SseWriterOptions
  #pending = ''
  #isFlushDue = false
  #bufferedBytes = 0
  #hold: { readonly promise: Promise<void>; readonly release: () => void } | undefined

  constructor(exchange: HttpExchange, options: SseWriterOptions) {
    this.#exchange = exchange
    this.#response = exchange.response
    this.#options = options
    this.#response.once('close', () => this.#hold?.release())
    // Older Node versions do not close the queued responses of a pipelining client that
    // disconnects.
    exchange.signal.addEventListener('abort', () => this.#hold?.release(), { once: true })
  }

  /**
   * Adds an event. A returned promise settles when the client has caught up or disconnected. Has no
   * effect after `end`: a choice may continue for a moment after another one has failed.
   */
  send(data: string, ignored: readonly string[] = []): Promise<void> | undefined {
    if (this.#exchange.isGone || this.#response.writableEnded) return undefined
    if (!this.#response.headersSent) {
      this.#exchange.writeHead(200, [...eventStreamHeaders, ...this.#options.headers(ignored)])
    }
    this.#pending += `data: ${data}\n\n`
    if (!this.#isFlushDue) {
      this.#isFlushDue = true
      this.#options.clock.nextTurn(() => this.#flush())
    }
    const isFull = this.#bufferedBytes + this.#pending.length > this.#options.bufferBytes
    if (!isFull) return undefined
    this.#hold ??= this.#startHold()
    return this.#hold.promise
  }

  /** Sends the last event and ends the response. */
  end(): void {
    this.#pending += 'data: [DONE]\n\n'
    this.#flush()
    this.#exchange.end()
  }

  #flush(): void {
    this.#isFlushDue = false
    const text = this.#pending
    if (text === '' || this.#response.destroyed) return
    this.#pending = ''
    const bytes = Buffer.byteLength(text)
    this.#bufferedBytes += bytes
    this.#response.write(text, () => {
      this.#bufferedBytes -= bytes
      if (this.#bufferedBytes + this.#pending.length <= this.#options.bufferBytes) {
        this.#hold?.release()
      }
    })
  }

  #startHold(): { readonly promise: Promise<void>; readonly release: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>()
    const endWatch = this.#exchange.watchReader()
    const release = (): void => {
      endWatch()
      this.#hold = undefined
      resolve()
    }
    return { promise, release }
  }
}
