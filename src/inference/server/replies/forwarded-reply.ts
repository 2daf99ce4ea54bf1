/** Sends the answer of the server behind the engine chunk by chunk, as fast as the client reads. */

import type { ForwardedAnswer } from '../../generation/inference-engine.ts'
import type { HttpExchange } from '../../../runtime/http/http-exchange.ts'
import { ignoredHeaders } from './replies.ts'

/** If the answer breaks off after the head was sent, the connection is cut. */
export async function sendForwarded(
  exchange: HttpExchange,
  { status, contentType, bytes, ignored = [] }: ForwardedAnswer,
): Promise<void> {
  const { response } = exchange
  const headers = ['content-type', contentType, ...ignoredHeaders({ ignored })]
  try {
    for await (const chunk of bytes) {
      if (exchange.isGone) return
      if (!response.headersSent) exchange.writeHead(status, headers)
      if (!response.write(chunk)) await untilRead(exchange)
    }
  } catch (error) {
    if (exchange.isGone) return
    if (!response.headersSent) throw error
    exchange.explain(error)
    return exchange.cut()
  }
  if (exchange.isGone) return
  if (!response.headersSent) exchange.writeHead(status, headers)
  exchange.end()
}

/**
 * Resolves when the client has caught up or disconnected; a client that reads nothing is cut off.
 */
async function untilRead(exchange: HttpExchange): Promise<void> {
  const { response } = exchange
  const endWatch = exchange.watchReader()
  const { promise, resolve } = Promise.withResolvers<void>()
  response.once('drain', resolve)
  response.once('close', resolve)
  await promise
  response.off('drain', resolve)
  response.off('close', resolve)
  endWatch()
}
