/** Writes server-sent events to one client, and holds the sender back while the client is slow. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import type { HttpExchange } from '../http-exchange.ts'

export interface SseWriterOptions {
  readonly clock: Clock
  /** How much may be buffered before `send` holds its caller back. */
  readonly bufferBytes: number
  /** Headers of the response besides those of an event stream. */
  readonly headers: readonly string[]
}

const eventStreamHeaders: readonly string[] = [
  'content-type',
  'text/event-stream; charset=utf-8',
  // Keeps nginx from buffering the events.
  'x-accel-buffering',
  'no',
]

/** Writes once per turn of the event loop; the head of the response goes out with the first. */
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
    // Older Node versions do not close queued responses when a pipelining client disconnects.
    exchange.signal.addEventListener('abort', () => this.#hold?.release(), { once: true })
  }

  /**
   * Adds an event. A returned promise settles when the client has caught up or disconnected. Has no
   * effect after `end`: a choice may go on for a moment after another one has failed.
   */
  send(data: string): Promise<void> | undefined {
    if (this.#exchange.isGone || this.#response.writableEnded) return undefined
    if (!this.#response.headersSent) {
      this.#exchange.writeHead(200, [...eventStreamHeaders, ...this.#options.headers])
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
