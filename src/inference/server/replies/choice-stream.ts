/** Streams a response: converts its choices to chunks and writes them as events. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import type { FinishReason, Usage } from '../../generation/inference-engine.ts'
import type { AnswerFields, PassedDelta, WireFields } from '../../generation/pass-through.ts'
import type { GenerationResult, ProgressListener } from '../../generation/text-generator.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'

/** The format of one response. */
export interface ReplyFormat {
  /** The body of a response that is not streamed. */
  whole(results: readonly GenerationResult[], usage: Usage): object
  /** The stream of the choice with this index. */
  stream(index: number, writer: SseWriter): ChoiceStream
}

/** The fields that all events of a response have in common. */
export interface ReplyHead {
  readonly id: string
  readonly created: number
  readonly model: string
  /** Whether the stream ends with the usage. All earlier chunks then have `usage: null`. */
  readonly includesUsage: boolean
}

export function usageFields(usage: Usage): object {
  const { promptTokens, completionTokens, details } = usage
  const counts = {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
  }
  return details === undefined ? counts : { ...counts, ...details }
}

/** Writes one choice as chunks. The head of the chunks is serialized only once. */
export abstract class ChoiceStream implements ProgressListener {
  protected readonly index: number
  readonly #writer: SseWriter
  #head: WireFields
  #prefix: string
  readonly #suffix: string
  #isOpen = false
  #hasText = false
  #toolCalls = 0
  /** Whether tool calls arrive in pieces, so that `finish` need not send complete ones. */
  #hasPieces = false

  constructor(index: number, writer: SseWriter, object: string, head: ReplyHead) {
    const { id, created, model } = head
    this.index = index
    this.#writer = writer
    this.#head = { id, object, created, model, system_fingerprint: null }
    this.#prefix = prefixOf(this.#head)
    this.#suffix = head.includesUsage ? '],"usage":null}' : ']}'
  }

  delta(delta: PassedDelta): Promise<void> | undefined {
    if (!this.#isOpen) this.#open(delta)
    this.#hasText ||= delta.text !== ''
    this.#toolCalls += delta.toolCalls?.length ?? 0
    this.#hasPieces ||= delta.toolCallPieces !== undefined
    const chunk = this.#toChunk(this.choiceOf(delta), delta.fields?.body)
    return this.#writer.send(chunk, delta.ignored)
  }

  /** Sends output that no delta contained, such as a refusal, and the last event of the choice. */
  finish(result: GenerationResult): void {
    const text = this.#hasText ? '' : result.text
    const toolCalls = this.#hasPieces ? [] : result.toolCalls.slice(this.#toolCalls)
    if (text !== '' || toolCalls.length > 0) void this.delta({ text, toolCalls })
    if (!this.#isOpen) this.#open()
    const { finishReason, lastFields } = result
    const closing = this.closing(finishReason, lastFields)
    void this.#writer.send(this.#toChunk(closing, lastFields?.body))
  }

  sendUsage(usage: Usage): void {
    void this.#writer.send(`${this.#prefix}],"usage":${JSON.stringify(usageFields(usage))}}`)
  }

  /** The event before the first delta of the choice; `undefined` if there is none. */
  protected abstract opening(first?: PassedDelta): object | undefined
  protected abstract choiceOf(delta: PassedDelta): object
  /** The last event; `fields` has the fields that no delta contained. */
  protected abstract closing(finishReason: FinishReason, fields?: AnswerFields): object

  /** The number of complete calls sent before the current delta. */
  protected sentCalls(current: number): number {
    return this.#toolCalls - current
  }

  #open(first?: PassedDelta): void {
    this.#isOpen = true
    this.#learn(first?.fields?.body)
    const opening = this.opening(first)
    if (opening !== undefined) void this.#writer.send(this.#toChunk(opening), first?.ignored)
  }

  /** Adds the fingerprint of the server behind the engine to all following chunks. */
  #learn(body: WireFields | undefined): void {
    const fingerprint = body?.['system_fingerprint']
    // Most servers send the same fingerprint with every chunk.
    const known = this.#head['system_fingerprint']
    if (typeof fingerprint !== 'string' || fingerprint === known) return
    this.#head = { ...this.#head, system_fingerprint: fingerprint }
    this.#prefix = prefixOf(this.#head)
  }

  /** `body` has additional fields of the chunk. */
  #toChunk(choice: object, body?: WireFields): string {
    const json = JSON.stringify(choice)
    if (body === undefined) return `${this.#prefix}${json}${this.#suffix}`
    this.#learn(body)
    const head = JSON.stringify({ ...this.#head, ...body })
    return `${head.slice(0, -1)},"choices":[${json}${this.#suffix}`
  }
}

const prefixOf = (head: WireFields): string => `${JSON.stringify(head).slice(0, -1)},"choices":[`

export interface SseWriterOptions {
  readonly clock: Clock
  /** If more than this is buffered, `send` returns a promise that delays its caller. */
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
 * Writes at most once per turn of the event loop. The first event also sends the response headers.
 */
export class SseWriter {
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
   * effect after `end`, because a choice may continue for a moment after another has failed.
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
