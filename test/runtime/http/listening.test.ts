import { createServer } from 'node:http'
import { hostname, type NetworkInterfaceInfo } from 'node:os'
import { describe, expect, it, onTestFinished } from 'vitest'
import { systemClock } from '../../../src/foundation/clock.ts'
import { TuttiError } from '../../../src/foundation/errors.ts'
import type { ListenErrorDetails } from '../../../src/runtime/http/http-error.ts'
import { acceptedHosts, listenError, startListening } from '../../../src/runtime/http/listening.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

const common = { netmask: '', mac: '', internal: false, cidr: null }
const interfaces = (): NodeJS.Dict<NetworkInterfaceInfo[]> => ({
  eth0: [
    { ...common, family: 'IPv4', address: '192.0.2.7' },
    { ...common, family: 'IPv6', address: '2001:db8::7', scopeid: 0 },
  ],
  eth1: undefined,
})
const names = ['localhost', '127.0.0.1', '[::1]', hostname()]

describe('known hosts', () => {
  it.each([
    ['127.0.0.1', []],
    ['192.0.2.7', []],
    ['0.0.0.0', ['192.0.2.7', '[2001:db8::7]']],
    ['[::]', ['192.0.2.7', '[2001:db8::7]']],
  ])('known hosts of %s are the names, the host and the addresses %j', (host, addresses) => {
    expect(acceptedHosts(host, interfaces)).toEqual([...names, host, ...addresses])
  })

  it('known hosts are the names and the host if the system does not reveal its addresses', () => {
    const silent = (): never => {
      throw new Error('uv_interface_addresses')
    }
    expect(acceptedHosts('::', silent)).toEqual([...names, '[::]'])
  })
})

const errors = {
  toListenError: (message: string, details: ListenErrorDetails) => new TuttiError(message, details),
}

describe('a server that listens', () => {
  const open = async (host: string | null, addresses: readonly string[] | null, port = 0) => {
    const server = createServer((_, response) => response.end('here'))
    const machine = {
      interfaces,
      addresses: () =>
        addresses === null ? Promise.reject(new Error()) : Promise.resolve(addresses),
    }
    const listening = await startListening(
      server,
      { host, port, clock: systemClock, errors },
      machine,
    )
    onTestFinished(() => {
      server.closeAllConnections()
      return listening.close()
    })
    return listening
  }
  const answerOf = async (url: string): Promise<string> =>
    fetch(url).then(
      (response) => response.text(),
      () => 'refused',
    )

  it("a server without a host listens on 127.0.0.1 and its name's loopback address", async () => {
    const { port, endpoint, hosts } = await open(null, ['127.0.1.1'])
    expect(endpoint).toBe(`http://${hostname()}:${port}`)
    for (const address of ['127.0.0.1', '127.0.1.1']) {
      expect(await answerOf(`http://${address}:${port}`)).toBe('here')
      expect(hosts).toContain(address)
    }
    expect(await answerOf(`http://127.0.2.2:${port}`)).toBe('refused')
  })

  it.each([
    ['no host, a name of this address', null, ['127.0.0.1'], hostname()],
    ['no host, a name of an address that it is not on', null, ['192.0.2.7'], '127.0.0.1'],
    ['no host, a name of both', null, ['127.0.0.1', '192.0.2.7'], '127.0.0.1'],
    ['no host, a name without an address', null, null, '127.0.0.1'],
    ['loopback, a name of this address', '127.0.0.1', ['127.0.0.1'], hostname()],
    ['loopback, a name of another one', '127.0.0.1', ['127.0.1.1'], '127.0.0.1'],
    ['all interfaces, a name of one of them', '0.0.0.0', ['192.0.2.7'], hostname()],
    ['all interfaces, a name of another machine', '0.0.0.0', ['192.0.2.9'], '192.0.2.7'],
  ])("a server's address is http://<name>:<port> where that leads to it: %s", async (...row) => {
    const [, host, addresses, client] = row
    const { port, endpoint } = await open(host, addresses)
    expect(endpoint).toBe(`http://${client}:${port}`)
  })

  it('row 82: a port that is taken on the address of its name is named as well', async () => {
    const { port } = await open('127.0.1.1', null)
    const attempt = open(null, ['127.0.1.1'], port)
    await expect(attempt).rejects.toMatchObject({
      code: 'port_in_use',
      message: `port ${port} in use; try --port 0`,
    })
    expect(await answerOf(`http://127.0.0.1:${port}`)).toBe('refused')
  })

  it('row 82: errors of listen() have a code, the port and a hint', () => {
    const errorOf = (code: string): unknown =>
      listenError(errors, '127.0.0.1', 80, Object.assign(new Error('listen refused'), { code }))
    for (const code of ['EACCES', 'EPERM']) {
      expect(errorOf(code)).toMatchObject({
        code: 'port_forbidden',
        message: 'no permission to listen on port 80; try --port 8000',
        hint: 'ports below 1024 need elevated privileges',
      })
    }
    expect(errorOf('EIO')).toMatchObject({
      code: 'listen_failed',
      message: 'cannot listen on port 80 of 127.0.0.1: listen refused',
    })
  })

  it('a server waits 2 s for the addresses of its name, and no longer', async () => {
    const clock = new ManualClock()
    const machine = { interfaces, addresses: () => new Promise<never>(() => {}) }
    const server = createServer()
    const opening = startListening(server, { host: null, port: 0, clock, errors }, machine)
    await clock.advance(2000)
    const listening = await opening
    expect(listening.endpoint).toBe(`http://127.0.0.1:${listening.port}`)
    await listening.close()
  })
})
