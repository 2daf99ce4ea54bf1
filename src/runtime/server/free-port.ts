/** Finds ports for servers that cannot choose one. */

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * The range of ports. Systems do not assign these ports automatically, so that a chosen port stays
 * free while a server loads its model for minutes.
 */
const portRange = { min: 10_000, max: 32_000 }
const maxTries = 100

/**
 * Finds a free port. If another process takes the port first, the server cannot start, and its
 * worker is restarted with another port.
 */
export async function findFreePort(host: string): Promise<number> {
  for (let tries = 0; tries < maxTries; tries++) {
    try {
      return await probePort(randomInt(portRange.min, portRange.max), host)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
  return await probePort(0, host)
}

/**
 * Resolves with the port if it can be used; otherwise rejects. For 0, the system chooses a port.
 */
async function probePort(port: number, host: string): Promise<number> {
  const probe = createServer()
  probe.listen(port, host)
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  return typeof address === 'object' && address !== null ? address.port : port
}
