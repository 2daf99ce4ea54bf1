/** Ports for servers whose port a test has to know before they start, or when they start again. */

import { randomInt } from 'node:crypto'
import { once } from 'node:events'
import { createServer } from 'node:net'

/** Below those that the system gives to connections of other tests while the server is down. */
const range = { min: 10_000, max: 32_000 }

export async function freePort(): Promise<number> {
  for (;;) {
    const port = randomInt(range.min, range.max)
    const probe = createServer().listen(port, '127.0.0.1')
    const isFree = await once(probe, 'listening').then(
      () => true,
      () => false,
    )
    if (!isFree) continue
    probe.close()
    await once(probe, 'close')
    return port
  }
}
