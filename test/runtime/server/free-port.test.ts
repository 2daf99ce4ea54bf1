import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, it } from 'vitest'
import { findFreePort } from '../../../src/runtime/server/guarded-server.ts'

const host = '127.0.0.1'

it('ports for servers can be used, and are none that the system gives to connections', async () => {
  for (let count = 0; count < 30; count++) {
    const port = await findFreePort(host)
    expect(port).toBeGreaterThanOrEqual(10_000)
    expect(port).toBeLessThan(32_000)
    const server = createServer().listen(port, host)
    await once(server, 'listening')
    server.close()
  }
})

it('an address that is not one of this machine is an error', async () => {
  await expect(findFreePort('192.0.2.1')).rejects.toMatchObject({ code: 'EADDRNOTAVAIL' })
})
