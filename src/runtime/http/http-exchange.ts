/** One HTTP request and its response: writes the head of every response, and complete bodies. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock } from '../../foundation/clock.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { ErrorReplies, HttpError } from './http-error.ts'
import { waitsForContinue } from './json-body.ts'

/**
 * After an error, the rest of a body up to this size is read, so that the connection can be reused.
 */
const smallBodyBytes = 65_536
/**
 * How long, and how many bytes, a client may still send after an error before the response ends.
 */
export const lingerMs = 1000
const lingerBytes = 4_194_304

/** Bodies are written in pieces of this size; each written piece proves that the client reads. */
const pieceBytes = 65_536

/** Headers of every response. */
export const safeHeaders: readonly string[] = [
  'x-content-type-options',
  'nosniff',
  'content-security-policy',
  "default-src 'none'",
  'cache-control',
  'no-store',
]

export interface HttpExchangeParts {
  readonly clock: Clock
  readonly errors: ErrorReplies
  /** Whether connections are closed after their response. */
  readonly isClosing: () => boolean
  /** How long a client may read nothing before its connection is destroyed. */
  readonly slowReaderSeconds: number
}

/** Exists until the response is sent or the client disconnects, which aborts `signal`. */
export class HttpExchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** The client's `x-request-id` if it is valid, otherwise a new one. */
  readonly requestId: string
  readonly path: string
  readonly #controller = new AbortController()
  readonly #parts: HttpExchangeParts
  /** Headers of every response to this request; alternating names and values. */
  #headers: readonly string[] = safeHeaders

  constructor(request: IncomingMessage, response: ServerResponse, parts: HttpExchangeParts) {
    this.request = request
    this.response = response
    this.#parts = parts
    const given = request.headers['x-request-id']
    this.requestId = typeof given === 'string' && printable.test(given) ? given : `req_${newUuid()}`
    const url = request.url ?? ''
    const query = url.indexOf('?')
    this.path = query < 0 ? url : url.slice(0, query)
  }

  /** Aborted when the response is no longer needed. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Whether the client has disconnected. */
  get isGone(): boolean {
    return this.response.destroyed || this.request.socket.destroyed
  }

  /** Adds headers to the response, whether it succeeds or fails. */
  addHeaders(headers: readonly string[]): void {
    if (headers.length > 0) this.#headers = [...this.#headers, ...headers]
  }

  abort(reason: string): void {
    this.#controller.abort(this.#parts.errors.toAbortReason(reason))
  }

  sendJson(status: number, body: object, headers: readonly string[] = []): void {
    this.sendText(status, JSON.stringify(body), ['content-type', 'application/json', ...headers])
  }

  sendText(status: number, text: string, headers: readonly string[]): void {
    if (this.isGone || this.response.headersSent) return
    const isLast = this.#isClientSending()
    const length = String(Buffer.byteLength(text))
    this.writeHead(status, ['content-length', length, ...headers], isLast)
    if (isLast && !waitsForContinue(this.request)) this.#endAfterBody(text)
    else this.end(text)
  }

  /** Sends a response without a body: status 204. */
  sendNothing(headers: readonly string[]): void {
    if (this.isGone || this.response.headersSent) return
    this.writeHead(204, headers, this.#isClientSending())
    this.end()
  }

  /** The error as the client may see it; details that the client must not see are logged. */
  explain(thrown: unknown): HttpError {
    return this.#parts.errors.toHttpError(thrown, this.requestId, this.path)
  }

  /** Sends the error response for anything thrown. */
  refuse(thrown: unknown): void {
    const error = this.explain(thrown)
    this.sendJson(error.status, this.errorBody(error), error.headers)
  }

  errorBody(error: HttpError): object {
    return this.#parts.errors.toBody(error, this.path)
  }

  /** Writes the head of the response, without a body. */
  writeHead(status: number, headers: readonly string[], isLast = false): void {
    const all = ['x-request-id', this.requestId, ...this.#headers, ...headers]
    if (isLast || this.#parts.isClosing()) all.push('connection', 'close')
    this.response.writeHead(status, all)
  }

  /** Ends the response. Destroys the connection if the client does not read. */
  end(text?: string): void {
    if (text === undefined) this.response.end()
    else this.#sendPieces(Buffer.from(text))
    this.response.once('close', this.watchReader())
  }

  /**
   * Destroys the connection if the client reads nothing for `slowReaderSeconds`. The returned
   * function stops watching. A response that is queued behind others on its connection is watched
   * only once the connection is free for it.
   */
  watchReader(): () => void {
    const { response } = this
    const { clock, slowReaderSeconds } = this.#parts
    let cancel = (): void => {}
    const watch = (socket: Socket): void => {
      const before = acceptedBytes(socket)
      const check = (): void => (acceptedBytes(socket) > before ? watch(socket) : this.cut())
      cancel = clock.after(slowReaderSeconds * 1000, check, { background: true })
    }
    if (response.socket === null) response.once('socket', watch)
    else watch(response.socket)
    return () => {
      response.off('socket', watch)
      cancel()
    }
  }

  /** Destroys the connection, including other responses on it. */
  cut(): void {
    this.request.socket.destroy()
  }

  /** Writes each piece after the previous one was written, so that progress is visible. */
  #sendPieces(bytes: Buffer): void {
    if (bytes.length <= pieceBytes) {
      this.response.end(bytes)
      return
    }
    this.response.write(bytes.subarray(0, pieceBytes), (error) => {
      if (!(error instanceof Error)) this.#sendPieces(bytes.subarray(pieceBytes))
    })
  }

  /** Whether the unread rest of the body is too large to read just to keep the connection. */
  #isClientSending(): boolean {
    const { request } = this
    if (request.complete) return false
    const length = request.headers['content-length']
    if (length === undefined) return request.headers['transfer-encoding'] !== undefined
    return Number(length) > smallBodyBytes || waitsForContinue(request)
  }

  /**
   * Closing a connection while the client still sends makes TCP discard the response on the
   * client's side. So the response is written, the rest of the body is discarded for a while, and
   * then the response is ended.
   */
  #endAfterBody(text: string): void {
    const { request, response } = this
    response.write(text)
    const end = (): void => {
      cancel()
      if (!response.writableEnded) this.end()
    }
    const cancel = this.#parts.clock.after(lingerMs, end, { background: true })
    let left = lingerBytes
    request.on('data', (chunk: Buffer) => {
      left -= chunk.length
      if (left < 0) end()
    })
    request.once('end', end)
    request.once('close', end)
  }
}

const printable = /^[\x21-\x7e]{1,128}$/

/** The number of bytes that the kernel has accepted for this connection. */
const acceptedBytes = (socket: Socket): number => socket.bytesWritten - socket.writableLength
