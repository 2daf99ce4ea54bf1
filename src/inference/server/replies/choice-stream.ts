/** Streams a response: converts its choices to chunks and writes them as events. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassThroughDelta, WireFields } from '../../generation/pass-through.ts'
import type { GenerationResult, ProgressListener } from '../../generation/text-generator.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'

export interface ReplyFormat {
  toBody(results: readonly GenerationResult[], usage: Usage): object
  createStream(index: number, writer: SseWriter): ChoiceStream
}

export interface ReplyHead {
  readonly id: string
  readonly created: number
  readonly model: string
  /** Whether a last chunk has the token usage. All earlier chunks then have `usage: null`. */
  readonly includesUsage: boolean
}

export function toUsageFields(usage: Usage): object {
  const { promptTokens, completionTokens, details } = usage
  const counts = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
  return details === undefined ? counts : { ...counts, ...details }
}

/** Writes one choice as chunks. The fields that all chunks share are serialized only once. */
export abstract class ChoiceStream implements ProgressListener {
  protected readonly index: number
  readonly #writer: SseWriter
  #head: WireFields
  #prefix: string
  readonly #suffix: string
  #isOpen = false
  #hasText = false
  #toolCalls = 0
  /** Whether tool calls arrive in pieces. If so, `finish` need not send complete calls. */
  #hasCallPieces = false

  constructor(index: number, writer: SseWriter, object: string, head: ReplyHead) {
    const { id, created, model } = head
    this.index = index
    this.#writer = writer
    this.#head = { id, object, created, model, system_fingerprint: null }
    this.#prefix = toPrefix(this.#head)
    this.#suffix = head.includesUsage ? '],"usage":null}' : ']}'
  }

  delta(delta: PassThroughDelta): Promise<void> | undefined {
    if (!this.#isOpen) this.#sendOpening(delta)
    this.#hasText ||= delta.text !== ''
    this.#toolCalls += delta.toolCalls?.length ?? 0
    this.#hasCallPieces ||= delta.toolCallPieces !== undefined
    const chunk = this.#toChunk(this.toChoice(delta), delta.fields?.body)
    return this.#writer.send(chunk, delta.ignored)
  }

  /** Sends output that no delta contained, such as a refusal, and the last event of the choice. */
  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = this.#hasCallPieces ? [] : result.toolCalls.slice(this.#toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.delta({ text, toolCalls })
    if (!this.#isOpen) this.#sendOpening()
    const { finishReason, lastFields } = result
    const closing = this.toClosingChoice(finishReason, lastFields)
    void this.#writer.send(this.#toChunk(closing, lastFields?.body))
  }

  sendUsage(usage: Usage): void {
    void this.#writer.send(`${this.#prefix}],"usage":${JSON.stringify(toUsageFields(usage))}}`)
  }

  /** Returns the event before the first delta; `undefined` if there is none. */
  protected abstract toOpeningChoice(first?: PassThroughDelta): object | undefined
  protected abstract toChoice(delta: PassThroughDelta): object
  /** Returns the last event. `fields` has the fields that no delta contained. */
  protected abstract toClosingChoice(finishReason: FinishReason, fields?: AnswerFields): object

  protected countSentCalls(current: number): number {
    return this.#toolCalls - current
  }

  #sendOpening(first?: PassThroughDelta): void {
    this.#isOpen = true
    this.#updateFingerprint(first?.fields?.body)
    const opening = this.toOpeningChoice(first)
    if (opening !== undefined) void this.#writer.send(this.#toChunk(opening), first?.ignored)
  }

  #updateFingerprint(body: WireFields | undefined): void {
    const fingerprint = body?.['system_fingerprint']
    // Most servers send the same fingerprint with every chunk, so the head rarely changes.
    const known = this.#head['system_fingerprint']
    if (typeof fingerprint !== 'string' || fingerprint === known) return
    this.#head = { ...this.#head, system_fingerprint: fingerprint }
    this.#prefix = toPrefix(this.#head)
  }

  #toChunk(choice: object, body?: WireFields): string {
    const json = JSON.stringify(choice)
    if (body === undefined) return `${this.#prefix}${json}${this.#suffix}`
    this.#updateFingerprint(body)
    const head = JSON.stringify({ ...this.#head, ...body })
    return `${head.slice(0, -1)},"choices":[${json}${this.#suffix}`
  }
}

const toPrefix = (head: WireFields): string => `${JSON.stringify(head).slice(0, -1)},"choices":[`

export interface SseWriterOptions {
  readonly clock: Clock
  /** Above this number of buffered bytes, `send` returns a promise. */
  readonly bufferBytes: number
  /** Returns the headers. `ignored` lists fields that the server behind the engine ignored. */
  readonly headers: (ignored: readonly string[]) => readonly string[]
}

const eventStreamHeaders: readonly string[] = [
  'content-type',
  'text/event-stream; charset=utf-8',
  // Keeps nginx from buffering the events.
  'x-accel-buffering',
  'no',
]

/** Writes the events of each turn of the event loop together. The first event sends the headers. */
export class SseWriter {
  readonly #exchange: HttpExchange
  readonly #response: ServerResponse
  readonly #options: SseWriterOptions
  #pending = ''
  #isFlushDue = false
  #bufferedBytes = 0
  #backpressure: { readonly promise: Promise<void>; readonly release: () => void } | undefined

  constructor(exchange: HttpExchange, options: SseWriterOptions) {
    this.#exchange = exchange
    this.#response = exchange.response
    this.#options = options
    this.#response.once('close', () => this.#backpressure?.release())
    // `close` is missing in older Node versions if a client with queued responses disconnects.
    exchange.signal.addEventListener('abort', () => this.#backpressure?.release(), { once: true })
  }

  /** A returned promise settles when the client has caught up. Has no effect after `end`. */
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
    this.#backpressure ??= this.#startBackpressure()
    return this.#backpressure.promise
  }

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
        this.#backpressure?.release()
      }
    })
  }

  #startBackpressure(): { readonly promise: Promise<void>; readonly release: () => void } {
    const { promise, resolve } = Promise.withResolvers<void>()
    const endWatch = this.#exchange.watchReader()
    const release = (): void => {
      endWatch()
      this.#backpressure = undefined
      resolve()
    }
    return { promise, release }
  }
}
