/** A `node:http` server with limits for every client; answers malformed requests itself. */

import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
  STATUS_CODES,
} from 'node:http'
import type { Duplex } from 'node:stream'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { lingerMs, safeHeaders } from './http-exchange.ts'
import { errorBody, HttpError } from './http-error.ts'
import type { ServerLimits } from './server-limits.ts'

/**
 * The server does not listen yet and has no request handler. `isAnswering` tells whether a response
 * is being sent on a connection, where no error may be written any more.
 */
export function createLimitedServer(
  limits: ServerLimits,
  clock: Clock,
  isAnswering: (socket: Duplex) => boolean,
): Server {
  const server = createServer({
    headersTimeout: limits.headersTimeoutMs,
    requestTimeout: limits.requestTimeoutMs,
    connectionsCheckingInterval: limits.connectionsCheckMs,
    keepAliveTimeout: limits.keepAliveMs,
    maxHeaderSize: limits.headerBytes,
    // Node would reply without a body; the request guard sends an error with an explanation.
    requireHostHeader: false,
  })
  limitConnections(server, limits.maxConnections)
  server.maxRequestsPerSocket = limits.maxRequestsPerSocket
  // One more than allowed: Node drops further headers silently, and the request guard must see that
  // there are too many.
  server.maxHeadersCount = limits.headerCount + 1
  server.on('clientError', (error, socket) => {
    const errno = errnoOf(error)
    if (errno === 'ECONNRESET' || isAnswering(socket)) socket.destroy()
    else sendAndClose(socket, refusals[errno] ?? malformed, clock)
  })
  server.on('connect', (_, socket) => sendAndClose(socket, noTunnels, clock))
  return server
}

const malformed = new HttpError(400, 'This is not a well-formed HTTP request.', {
  code: 'bad_request',
})
const noTunnels = new HttpError(501, 'CONNECT is not supported.', { code: 'not_implemented' })

const refusals: Readonly<Record<string, HttpError>> = {
  HPE_HEADER_OVERFLOW: new HttpError(431, 'The headers are too large.', {
    code: 'headers_too_large',
  }),
  ERR_HTTP_REQUEST_TIMEOUT: new HttpError(408, 'The request did not arrive in time.', {
    code: 'request_timeout',
  }),
}

/** May be called several times for one socket, if its client goes on sending. */
function sendAndClose(socket: Duplex, error: HttpError, clock: Clock): void {
  if (socket.writableEnded) return
  const body = JSON.stringify(errorBody(error))
  const headers = [...safeHeaders, 'content-type', 'application/json', 'connection', 'close']
  headers.push('x-request-id', `req_${newUuid()}`, 'content-length', String(body.length))
  const lines = [`HTTP/1.1 ${error.status} ${STATUS_CODES[error.status] ?? ''}`]
  for (let at = 0; at < headers.length; at += 2) lines.push(`${headers[at]}: ${headers[at + 1]}`)
  socket.on('error', () => {})
  const cancel = clock.after(lingerMs, () => socket.destroy(), { background: true })
  socket.once('close', cancel)
  socket.once('end', () => socket.destroy())
  socket.resume()
  socket.end(`${lines.join('\r\n')}\r\n\r\n${body}`)
}

/**
 * At the limit, the least useful connection is closed in favour of a new one. (Node would reject
 * the new one, so that a client with idle connections could lock out all others.) The new one is
 * rejected only if every connection has a complete request in progress.
 */
function limitConnections(server: Server, limit: number): void {
  /** The requests in progress on each connection; the connection that was idle longest is first. */
  const open = new Map<Duplex, Set<IncomingMessage>>()
  server.on('connection', (socket) => {
    // Removed here and not only on `close`, which is emitted later: clients may connect until then.
    const spare = open.size < limit ? undefined : (minUseful(open) ?? socket)
    if (spare !== undefined) open.delete(spare)
    if (spare !== socket) open.set(socket, new Set())
    socket.once('close', () => open.delete(socket))
    spare?.destroy()
  })
  const track = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket } = request
    const requests = open.get(socket)
    if (requests === undefined) return
    requests.add(request)
    response.once('close', () => {
      requests.delete(request)
      // Moves the connection to the end of the order, because it was just used.
      if (open.delete(socket)) open.set(socket, requests)
    })
  }
  server.on('request', track)
  server.on('checkContinue', track)
  server.on('checkExpectation', track)
}

/** A connection without requests, or else one whose requests are all incomplete. */
function minUseful(open: ReadonlyMap<Duplex, ReadonlySet<IncomingMessage>>): Duplex | undefined {
  let unfinished: Duplex | undefined
  for (const [socket, requests] of open) {
    if (requests.size === 0) return socket
    if (!hasComplete(requests)) unfinished ??= socket
  }
  return unfinished
}

function hasComplete(requests: ReadonlySet<IncomingMessage>): boolean {
  for (const { complete } of requests) if (complete) return true
  return false
}
