/** Ports for servers that cannot choose one themselves. */

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

/**
 * Below the ports that systems assign to outgoing connections and to servers that listen on port 0:
 * a server may load a model for minutes before it listens.
 */
const range = { min: 10_000, max: 32_000 }
const maxTries = 100

/**
 * A free port. If another process takes it before the server does, the server cannot start, and its
 * worker is restarted with another port.
 */
export async function findFreePort(host: string): Promise<number> {
  for (let tries = 0; tries < maxTries; tries++) {
    try {
      return await probePort(randomInt(range.min, range.max), host)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error
    }
  }
  return await probePort(0, host)
}

/** Rejects if the port cannot be used. For 0, the system chooses a port. */
async function probePort(port: number, host: string): Promise<number> {
  const probe = createServer()
  probe.listen(port, host)
  await once(probe, 'listening')
  const address = probe.address()
  probe.close()
  await once(probe, 'close')
  return typeof address === 'object' && address !== null ? address.port : port
}
