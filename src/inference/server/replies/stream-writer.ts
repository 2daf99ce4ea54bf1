/** Writes the parts of a streamed reply, and pauses the generation while the client lags behind. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'

export interface StreamWriterOptions {
  readonly clock: Clock
  /** Above this number of buffered bytes, `send` returns a promise. */
  readonly bufferBytes: number
  readonly contentType: string
  /** Returns the headers. `ignored` lists fields that the server behind the engine ignored. */
  readonly headers: (ignored: readonly string[]) => readonly string[]
}

/** Keeps nginx from buffering the stream. */
const unbufferedHeaders: readonly string[] = ['x-accel-buffering', 'no']

/** Writes the parts of each turn of the event loop together. The first part sends the headers. */
export class StreamWriter {
  readonly #exchange: HttpExchange
  readonly #response: ServerResponse
  readonly #options: StreamWriterOptions
  #pending = ''
  #isFlushDue = false
  #bufferedBytes = 0
  #backpressure: { readonly promise: Promise<void>; readonly release: () => void } | undefined

  constructor(exchange: HttpExchange, options: StreamWriterOptions) {
    this.#exchange = exchange
    this.#response = exchange.response
    this.#options = options
    this.#response.once('close', () => this.#backpressure?.release())
    // Older Node versions emit no `close` if a client with queued responses disconnects.
    exchange.signal.addEventListener('abort', () => this.#backpressure?.release(), { once: true })
  }

  /** A returned promise settles when the client has caught up. Has no effect after `end`. */
  send(text: string, ignored: readonly string[] = []): Promise<void> | undefined {
    if (this.#exchange.isGone || this.#response.writableEnded) return undefined
    if (!this.#response.headersSent) {
      const { contentType, headers } = this.#options
      const all = ['content-type', contentType, ...unbufferedHeaders, ...headers(ignored)]
      this.#exchange.writeHead(200, all)
    }
    this.#pending += text
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
