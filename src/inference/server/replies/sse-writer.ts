/** Server-sent events for one reader, who may be slow: then the writer is asked to wait. */

import type { ServerResponse } from 'node:http'
import type { Clock } from '../../../foundation/clock.ts'
import type { HttpExchange } from '../http-exchange.ts'

export interface SseWriterOptions {
  readonly clock: Clock
  readonly bufferBytes: number
}

export const eventStreamHeaders: readonly string[] = [
  'content-type',
  'text/event-stream; charset=utf-8',
  // Proxies must not collect what is meant to be read at once.
  'x-accel-buffering',
  'no',
]

/** Writes once a turn what came in it. */
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
    // Older Nodes do not close the queued responses of a pipelining client that leaves.
    exchange.signal.addEventListener('abort', () => this.#hold?.release(), { once: true })
  }

  /** Adds an event. A promise asks to wait until the reader has caught up or is gone. */
  send(data: string): Promise<void> | undefined {
    this.#pending += `data: ${data}\n\n`
    if (!this.#isFlushDue) {
      this.#isFlushDue = true
      this.#options.clock.nextTurn(() => this.#flush())
    }
    const isFull = this.#bufferedBytes + this.#pending.length > this.#options.bufferBytes
    if (!isFull || this.#response.destroyed) return undefined
    this.#hold ??= this.#startHold()
    return this.#hold.promise
  }

  /** Says that nothing follows. */
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
