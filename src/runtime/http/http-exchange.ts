/** One HTTP request and its response. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock } from '../../foundation/clock.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { ErrorReplies, HttpError } from './http-error.ts'
import { waitsForContinue } from './json-body.ts'
import type { AcceptedKey } from './request-guard.ts'

/** Smaller bodies are read to their end after an error, so that the connection can be reused. */
const smallBodyBytes = 65_536
/** How long a client may continue to send after an error. */
export const lingerMs = 1000
/** How many bytes a client may send after an error. */
const lingerBytes = 4_194_304

/** The size of a write. Each completed write shows that the client still reads. */
const chunkBytes = 65_536

export const securityHeaders: readonly string[] = [
  'x-content-type-options',
  'nosniff',
  'content-security-policy',
  "default-src 'none'",
  'cache-control',
  'no-store',
]

export interface HttpExchangeOptions {
  readonly clock: Clock
  readonly errors: ErrorReplies
  readonly isClosing: () => boolean
  readonly slowReaderSeconds: number
  /** The headers of every response, as alternating names and values. */
  readonly headers: readonly string[]
  readonly basePath: string
}

/** Exists until the response is sent or the client disconnects. A disconnect aborts `signal`. */
export class HttpExchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** The client's `x-request-id` if it is valid, otherwise a new one. */
  readonly requestId: string
  /** The requested path without the base path of the server. Empty outside of the base path. */
  readonly path: string
  /** The path of the route that answers; empty until it is known. */
  route = ''
  /** The key of the request, known after the check of the request. `null` if no key is needed. */
  key: AcceptedKey | null = null
  /** The tokens that a model has read and written for the request. */
  promptTokens = 0
  completionTokens = 0
  /** How long the request has waited before a route could answer it. */
  waitedMs = 0
  /** The parsed body; `undefined` if none was read. */
  body: unknown
  /** The texts that a model has generated for the request. */
  readonly answers: string[] = []
  readonly #controller = new AbortController()
  readonly #options: HttpExchangeOptions
  /** Alternating names and values. */
  #headers: readonly string[]

  constructor(request: IncomingMessage, response: ServerResponse, parts: HttpExchangeOptions) {
    this.request = request
    this.response = response
    this.#options = parts
    this.#headers = parts.headers
    const given = request.headers['x-request-id']
    this.requestId = typeof given === 'string' && printable.test(given) ? given : `req_${newUuid()}`
    const url = request.url ?? ''
    const query = url.indexOf('?')
    const path = query < 0 ? url : url.slice(0, query)
    this.path = removeBase(path, parts.basePath)
  }

  get signal(): AbortSignal {
    return this.#controller.signal
  }

  get isGone(): boolean {
    return this.response.destroyed || this.request.socket.destroyed
  }

  /** Who sends the request: the name of the key, or else the address. */
  get client(): string {
    const name = this.key?.name ?? null
    return name === null ? `address ${this.request.socket.remoteAddress}` : `key ${name}`
  }

  /** The status of the response; 499 if the client disconnected before there was one. */
  get status(): number {
    return this.response.headersSent ? this.response.statusCode : 499
  }

  /** Adds headers to the response, even if it is an error. */
  addHeaders(headers: readonly string[]): void {
    if (headers.length > 0) this.#headers = [...this.#headers, ...headers]
  }

  addTokens(promptTokens: number, completionTokens: number): void {
    this.promptTokens += promptTokens
    this.completionTokens += completionTokens
    this.key?.addTokens(promptTokens, completionTokens)
  }

  /** Replaces the headers of every response, for example for a page with a policy of its own. */
  replaceHeaders(headers: readonly string[]): void {
    this.#headers = headers
  }

  abort(reason: string): void {
    this.#controller.abort(this.#options.errors.toAbortReason(reason))
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

  sendNothing(headers: readonly string[]): void {
    if (this.isGone || this.response.headersSent) return
    this.writeHead(204, headers, this.#isClientSending())
    this.end()
  }

  toHttpError(thrown: unknown): HttpError {
    return this.#options.errors.toHttpError(thrown, this.requestId, this.path)
  }

  sendError(thrown: unknown): void {
    const error = this.toHttpError(thrown)
    this.sendJson(error.status, this.errorBody(error), error.headers)
  }

  errorBody(error: HttpError): object {
    return this.#options.errors.toBody(error, this.path, this.request.headers)
  }

  writeHead(status: number, headers: readonly string[], isLast = false): void {
    const all = ['x-request-id', this.requestId, ...this.#headers, ...headers]
    if (isLast || this.#options.isClosing()) all.push('connection', 'close')
    this.response.writeHead(status, all)
  }

  /** Ends the response. Destroys the connection if the client does not read. */
  end(text?: string): void {
    if (text === undefined) this.response.end()
    else this.#sendChunks(Buffer.from(text))
    this.response.once('close', this.watchReader())
  }

  /**
   * Destroys the connection if the client reads nothing for `slowReaderSeconds`. With pipelining,
   * starts watching only after the earlier responses are sent. Call the result to stop watching.
   */
  watchReader(): () => void {
    const { response } = this
    const { clock, slowReaderSeconds } = this.#options
    let cancel = (): void => {}
    const watch = (socket: Socket): void => {
      const acceptedBefore = acceptedBytes(socket)
      const check = (): void =>
        acceptedBytes(socket) > acceptedBefore ? watch(socket) : this.destroyConnection()
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
  destroyConnection(): void {
    this.request.socket.destroy()
  }

  /** Writes each chunk after the previous one, so that progress is visible. */
  #sendChunks(bytes: Buffer): void {
    if (bytes.length <= chunkBytes) {
      this.response.end(bytes)
      return
    }
    this.response.write(bytes.subarray(0, chunkBytes), (error) => {
      if (!(error instanceof Error)) this.#sendChunks(bytes.subarray(chunkBytes))
    })
  }

  /** Whether the client is still sending a body that is too large to read. */
  #isClientSending(): boolean {
    const { request } = this
    if (request.complete) return false
    const length = request.headers['content-length']
    if (length === undefined) return request.headers['transfer-encoding'] !== undefined
    return Number(length) > smallBodyBytes || waitsForContinue(request)
  }

  /**
   * Ends the response when the client has sent its body: if it ended earlier, the client might drop
   * the response.
   */
  #endAfterBody(text: string): void {
    const { request, response } = this
    response.write(text)
    const end = (): void => {
      cancel()
      if (!response.writableEnded) this.end()
    }
    const cancel = this.#options.clock.after(lingerMs, end, { background: true })
    let bytesLeft = lingerBytes
    request.on('data', (chunk: Buffer) => {
      bytesLeft -= chunk.length
      if (bytesLeft < 0) end()
    })
    request.once('end', end)
    request.once('close', end)
  }
}

const printable = /^[\x21-\x7e]{1,128}$/

/** The number of bytes that the kernel has accepted for this connection. */
const acceptedBytes = (socket: Socket): number => socket.bytesWritten - socket.writableLength

function removeBase(path: string, base: string): string {
  if (base === '') return path
  if (path === base) return '/'
  return path.startsWith(`${base}/`) ? path.slice(base.length) : ''
}
