/** So many connections at a time: at the limit, the least useful one makes room for a new one. */

import type { IncomingMessage, Server, ServerResponse } from 'node:http'
import type { Duplex } from 'node:stream'

/**
 * Node itself would turn away the newest, and whoever holds idle connections would lock out all
 * others. Here a connection is turned away only when all have a whole request that is answered.
 */
export function limitConnections(server: Server, limit: number): void {
  /** The requests under way of every connection; the one that is idle for longest comes first. */
  const open = new Map<Duplex, Set<IncomingMessage>>()
  server.on('connection', (socket) => {
    // Its close is told later than it happens, and others may come until then.
    const spare = open.size < limit ? undefined : (leastUseful(open) ?? socket)
    if (spare !== undefined) open.delete(spare)
    if (spare !== socket) open.set(socket, new Set())
    socket.once('close', () => open.delete(socket))
    spare?.destroy()
  })
  const note = (request: IncomingMessage, response: ServerResponse): void => {
    const { socket } = request
    const requests = open.get(socket)
    if (requests === undefined) return
    requests.add(request)
    response.once('close', () => {
      requests.delete(request)
      // It was of use just now: it goes to the end of the row.
      if (open.delete(socket)) open.set(socket, requests)
    })
  }
  server.on('request', note)
  server.on('checkContinue', note)
  server.on('checkExpectation', note)
}

/** One without any request, else one whose requests are not wholly here. */
function leastUseful(open: ReadonlyMap<Duplex, ReadonlySet<IncomingMessage>>): Duplex | undefined {
  let unfinished: Duplex | undefined
  for (const [socket, requests] of open) {
    if (requests.size === 0) return socket
    if (!hasWhole(requests)) unfinished ??= socket
  }
  return unfinished
}

function hasWhole(requests: ReadonlySet<IncomingMessage>): boolean {
  for (const { complete } of requests) if (complete) return true
  return false
}
