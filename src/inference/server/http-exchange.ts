/** One request and its response: the only writer of heads and of answers that are not streams. */

import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import type { Log } from '../../foundation/log.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import { waitsForContinue } from './requests/body.ts'
import { errorBody, type HttpError, isHidden, toHttpError } from './http-error.ts'

/** Bodies up to here are read to their end after a refusal, so that the connection can go on. */
const smallBodyBytes = 65_536
/** How long, and for how much, a refused client may go on sending, so that it can read why. */
export const lingerMs = 1000
const lingerBytes = 4_194_304

/** Answers leave in pieces of this size: a piece that is out shows that somebody reads. */
const pieceBytes = 65_536

/** Headers of everything we say. */
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
  readonly log: Log
  /** Whether connections are to end with the answer that is being given. */
  readonly isClosing: () => boolean
  /** How long nothing of an answer may be taken by its reader. */
  readonly slowReaderSeconds: number
}

/** Lives until its response is out, or its client gone and `signal` aborted. */
export class HttpExchange {
  readonly request: IncomingMessage
  readonly response: ServerResponse
  /** The client's own `x-request-id` if it is fit to be repeated. */
  readonly requestId: string
  readonly path: string
  readonly #controller = new AbortController()
  readonly #surroundings: HttpExchangeParts

  constructor(request: IncomingMessage, response: ServerResponse, surroundings: HttpExchangeParts) {
    this.request = request
    this.response = response
    this.#surroundings = surroundings
    const asked = request.headers['x-request-id']
    this.requestId = typeof asked === 'string' && printable.test(asked) ? asked : `req_${newUuid()}`
    const url = request.url ?? ''
    const query = url.indexOf('?')
    this.path = query < 0 ? url : url.slice(0, query)
  }

  /** Aborted when nobody waits for the answer anymore. */
  get signal(): AbortSignal {
    return this.#controller.signal
  }

  /** Whether there is nobody left to answer. */
  get isGone(): boolean {
    return this.response.destroyed || this.request.socket.destroyed
  }

  abort(reason: string): void {
    this.#controller.abort(inferenceError('canceled', reason))
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

  /** What the client may know of whatever was thrown; what it may not is logged. */
  explain(thrown: unknown): HttpError {
    const error = toHttpError(thrown, this.requestId)
    if (isHidden(thrown)) {
      const { requestId, path } = this
      const text = maskSecrets(`${requestId} ${path} ${error.code}: ${wholeStory(thrown)}`)
      this.#surroundings.log.warn('InferenceRequestFailed', text)
    }
    return error
  }

  /** An error in the API's shape. */
  refuse(error: HttpError): void {
    this.sendJson(error.status, errorBody(error), error.headers)
  }

  /** The head; what follows is the caller's. */
  writeHead(status: number, headers: readonly string[], isLast = false): void {
    const all = ['x-request-id', this.requestId, ...safeHeaders, ...headers]
    if (isLast || this.#surroundings.isClosing()) all.push('connection', 'close')
    this.response.writeHead(status, all)
  }

  /** The connection ends with this response, though its head did not say so. */
  closeAfterwards(): void {
    this.response.once('finish', () => this.request.socket.end())
  }

  /** Ends the response, and cuts the connection of a client that does not read it. */
  end(text?: string): void {
    if (text === undefined) this.response.end()
    else this.#sendPieces(Buffer.from(text))
    this.response.once('close', this.watchReader())
  }

  /**
   * Cuts the connection when its reader takes nothing between two looks; the returned function
   * ends the watch. A response that waits behind others of its connection is not watched yet.
   */
  watchReader(): () => void {
    const { response } = this
    const { clock, slowReaderSeconds } = this.#surroundings
    let cancel = (): void => {}
    const watch = (socket: Socket): void => {
      const before = takenBytes(socket)
      const look = (): void => (takenBytes(socket) > before ? watch(socket) : this.cut())
      cancel = clock.after(slowReaderSeconds * 1000, look, { background: true })
    }
    if (response.socket === null) response.once('socket', watch)
    else watch(response.socket)
    return () => {
      response.off('socket', watch)
      cancel()
    }
  }

  /** Ends the connection at once, also when others write to it. */
  cut(): void {
    this.request.socket.destroy()
  }

  /** One after the other: what waits in a socket together also leaves it together. */
  #sendPieces(bytes: Buffer): void {
    if (bytes.length <= pieceBytes) {
      this.response.end(bytes)
      return
    }
    this.response.write(bytes.subarray(0, pieceBytes), (error) => {
      if (!(error instanceof Error)) this.#sendPieces(bytes.subarray(pieceBytes))
    })
  }

  /** Whether too much of the body is still to come for the connection to be kept. */
  #isClientSending(): boolean {
    const { request } = this
    if (request.complete) return false
    const length = request.headers['content-length']
    if (length === undefined) return request.headers['transfer-encoding'] !== undefined
    return Number(length) > smallBodyBytes || waitsForContinue(request)
  }

  /**
   * Closing a connection while the client still sends would take the answer from it again: the
   * answer goes out, then what comes is thrown away for a moment, then the connection ends.
   */
  #endAfterBody(text: string): void {
    const { request, response } = this
    response.write(text)
    const end = (): void => {
      cancel()
      if (!response.writableEnded) this.end()
    }
    const cancel = this.#surroundings.clock.after(lingerMs, end, { background: true })
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

/** What has left the process on this connection. */
const takenBytes = (socket: Socket): number => socket.bytesWritten - socket.writableLength

/** With the cause, where engines keep the details. */
function wholeStory(thrown: unknown): string {
  const cause = thrown instanceof Error ? thrown.cause : undefined
  return cause === undefined ? messageOf(thrown) : `${messageOf(thrown)} (${messageOf(cause)})`
}
