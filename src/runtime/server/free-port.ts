/** Ports for servers that cannot choose one themselves. */

import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * A free port. If another process takes it before the server does, the server cannot start, and its
 * worker is restarted with another port.
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
