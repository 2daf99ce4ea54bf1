/** A bare HTTP server that bounds every client, and answers what never becomes a request. */

import { createServer, type Server, STATUS_CODES } from 'node:http'
import type { Duplex } from 'node:stream'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { newUuid } from '../../foundation/ids.ts'
import { lingerMs, safeHeaders } from './http-exchange.ts'
import { errorBody, HttpError } from './http-error.ts'
import { limitConnections } from './connection-limit.ts'
import type { ServerLimits } from './server-limits.ts'

/**
 * Neither listens yet nor answers requests. `isAnswering` tells whether an answer is on its way on
 * a connection: then nothing else may be said there.
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
    // Node would refuse without a word; the gate says what is wrong.
    requireHostHeader: false,
  })
  limitConnections(server, limits.maxConnections)
  server.maxRequestsPerSocket = limits.maxRequestsPerSocket
  // One more than is allowed, so that too many are noticed instead of cut off.
  server.maxHeadersCount = limits.headerCount + 1
  server.on('clientError', (error, socket) => {
    const errno = errnoOf(error)
    if (errno === 'ECONNRESET' || isAnswering(socket)) socket.destroy()
    else sayAndClose(socket, refusals[errno] ?? malformed, clock)
  })
  server.on('connect', (_, socket) => sayAndClose(socket, noTunnels, clock))
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
  ERR_HTTP_REQUEST_TIMEOUT: new HttpError(408, 'The request did not come in time.', {
    code: 'request_timeout',
  }),
}

/** Also called again and again for one socket, while its client goes on sending. */
function sayAndClose(socket: Duplex, error: HttpError, clock: Clock): void {
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
