/** Addresses on this machine for a server that is about to be started. */

import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * A port that nobody listens on. Somebody else may take it before the server does: then the server
 * cannot start, and its worker is started anew with another.
 */
export async function findFreePort(host: string): Promise<number> {
  const probe = createServer()
  probe.listen(0, host)
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  return typeof address === 'object' && address !== null ? address.port : 0
}

/** Where to reach from here what listens on `host`. */
export function toOrigin(host: string, port: number): string {
  const reachable = host === '0.0.0.0' ? '127.0.0.1' : host === '::' ? '::1' : host
  return `http://${reachable.includes(':') ? `[${reachable}]` : reachable}:${port}`
}
