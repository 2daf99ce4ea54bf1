/** Validates the server's address, listens on it, and explains failures to listen. */

import { lookup } from 'node:dns/promises'
import type { Server as HttpServer } from 'node:http'
import { type AddressInfo, createServer, isIPv4, type Server } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf, messageOf, tryRead, ValueError } from '../../foundation/errors.ts'
import { expectInteger, expectString, isLoopbackHost } from '../../foundation/options.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { ErrorReplies } from './http-error.ts'

export const machineName = hostname()

const wildcards = new Set(['0.0.0.0', '::', '[::]'])

/** Throws for an invalid address, and if other machines could reach it without an API key. */
export function expectListenAddress(address: {
  readonly host: string | null
  readonly port: number
  /** Whether clients must send a key. */
  readonly needsKey: boolean
}): void {
  const { host, needsKey } = address
  if (host !== null) expectString('host', host)
  expectInteger('port', address.port, { min: 0, max: 65_535 })
  if (!needsKey && host !== null && !isLoopbackHost(host)) {
    throw new ValueError(
      `Expected \`apiKey\` to be set, because other machines can reach \`${host}\``,
      {
        field: 'apiKey',
        expected: 'a key, or a loopback `host` such as 127.0.0.1',
        got: null,
        hint: 'Give an `apiKey`, or `host: "127.0.0.1"` to serve only programs on this machine.',
      },
    )
  }
}

/** Network information about this machine. Tests replace it. */
export interface Machine {
  readonly interfaces: typeof networkInterfaces
  /** The addresses of this machine's name. Rejects or takes long if there are none. */
  readonly addresses: () => Promise<readonly string[]>
}

const thisMachine: Machine = {
  interfaces: networkInterfaces,
  addresses: async () => (await lookup(machineName, { all: true })).map(({ address }) => address),
}

const lookupTimeoutMs = 2000
const loopback = '127.0.0.1'

export interface ListeningServer {
  /** The URL of the server, with this machine's name if the name resolves to the server. */
  readonly endpoint: string
  readonly port: number
  /** The `Host` headers that the server accepts, without port. */
  readonly hosts: readonly string[]
  close(): Promise<void>
}

type ListenErrors = Pick<ErrorReplies, 'toListenError'>

export interface ListenOptions {
  /** `null` means 127.0.0.1 and the loopback address that this machine's name resolves to. */
  readonly host: string | null
  /** The port to listen on; 0 chooses a free port. */
  readonly port: number
  /** Whether the server has a certificate. Default `false`. */
  readonly isTls?: boolean
  readonly clock: Clock
  readonly errors: ListenErrors
  /** Whether the process may exit while the server listens. Default `false`. */
  readonly isBackground?: boolean
}

/** Listens on the given address. Rejects with an error that says what to do. */
export async function startListening(
  server: HttpServer,
  { host, port: requestedPort, isTls = false, clock, errors, isBackground = false }: ListenOptions,
  machine: Machine = thisMachine,
): Promise<ListeningServer> {
  const nameAddresses = await boundedWait(clock, lookupTimeoutMs, machine.addresses()).catch(
    () => [],
  )
  const port = await listen(server, host ?? loopback, requestedPort, errors)
  const servers: Server[] = [server]
  const close = async (): Promise<void> => {
    await Promise.all(servers.map((one) => new Promise((resolve) => one.close(resolve))))
  }
  const boundAddresses = [(server.address() as AddressInfo).address]
  for (const other of host === null ? nameAddresses : []) {
    if (!isLoopbackHost(other) || boundAddresses.includes(other)) continue
    const second = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      server.emit('connection', socket)
    })
    try {
      await listen(second, other, port, errors)
      servers.push(second)
      boundAddresses.push(other)
    } catch (error) {
      // Continues without the second address, unless the requested port is in use there.
      if (requestedPort === 0 || errnoOf(error) !== 'port_in_use') continue
      await close()
      throw error
    }
  }
  if (isBackground) for (const one of servers) one.unref()
  const reachesServer = createReachTest(boundAddresses, machine.interfaces)
  const hosts = [
    ...acceptedHosts(host ?? loopback, machine.interfaces),
    ...boundAddresses.map(withBrackets),
  ]
  const isReachableByName = nameAddresses.length > 0 && nameAddresses.every(reachesServer)
  const client = isReachableByName
    ? machineName
    : clientAddress(host ?? loopback, machine.interfaces)
  const scheme = isTls ? 'https' : 'http'
  return { endpoint: `${scheme}://${client}:${port}`, port, hosts: [...new Set(hosts)], close }
}

/** Resolves with the actual port. */
function listen(server: Server, host: string, port: number, errors: ListenErrors): Promise<number> {
  return new Promise((resolve, reject) => {
    const fail = (cause: Error): void => reject(listenError(errors, host, port, cause))
    server.once('error', fail)
    server.listen(port, withoutBrackets(host), () => {
      server.off('error', fail)
      resolve((server.address() as AddressInfo).port)
    })
  })
}

function createReachTest(boundAddresses: readonly string[], interfaces: typeof networkInterfaces) {
  const ownAddresses = new Set(listAddresses(interfaces).map(withoutBrackets))
  const isOwn = (address: string): boolean => isLoopbackHost(address) || ownAddresses.has(address)
  return (address: string): boolean => {
    if (boundAddresses.includes(address)) return true
    const isAnyBound =
      boundAddresses.includes('::') || (boundAddresses.includes('0.0.0.0') && isIPv4(address))
    return isAnyBound && isOwn(address)
  }
}

/** For a server on all interfaces, returns the first address that other machines can reach. */
function clientAddress(host: string, interfaces: typeof networkInterfaces): string {
  if (!wildcards.has(host)) return withBrackets(host)
  const others = listAddresses(interfaces).filter((address) => !isLoopbackHost(address))
  return others.find(isIPv4) ?? others[0] ?? loopback
}

/** Returns accepted `Host` headers. Includes IP addresses: DNS rebinding needs a host name. */
export function acceptedHosts(host: string, interfaces = networkInterfaces): readonly string[] {
  const ownHosts = ['localhost', '127.0.0.1', '[::1]', machineName, withBrackets(host)]
  return wildcards.has(host) ? [...ownHosts, ...listAddresses(interfaces)] : ownHosts
}

function listAddresses(interfaces: typeof networkInterfaces): readonly string[] {
  const all = Object.values(tryRead(interfaces) ?? {}).flatMap((addresses) => addresses ?? [])
  return all.map(({ address }) => withBrackets(address))
}

const withoutBrackets = (host: string): string => host.replace(/^\[(.*)\]$/, '$1')
const withBrackets = (host: string): string =>
  withoutBrackets(host).includes(':') ? `[${withoutBrackets(host)}]` : host

export function listenError(
  { toListenError }: ListenErrors,
  host: string,
  port: number,
  cause: Error,
): Error {
  const errno = errnoOf(cause)
  if (errno === 'EADDRINUSE') {
    const hint = `find the process that listens: ss -ltnp 'sport = :${port}'`
    const message = `port ${port} in use; try --port 0`
    return toListenError(message, { code: 'port_in_use', hint, cause })
  }
  if (errno === 'EACCES' || errno === 'EPERM') {
    const hint = 'ports below 1024 need elevated privileges'
    const message = `no permission to listen on port ${port}; try --port 8000`
    return toListenError(message, { code: 'port_forbidden', hint, cause })
  }
  const message = `cannot listen on port ${port} of ${host}:`
  if (errno === 'ENOTFOUND' || errno === 'EAI_AGAIN' || errno === 'EADDRNOTAVAIL') {
    const hint = 'use 127.0.0.1, or 0.0.0.0 for all network interfaces'
    const reason = 'address not available on this host'
    return toListenError(`${message} ${reason}`, { code: 'host_unknown', hint, cause })
  }
  return toListenError(`${message} ${messageOf(cause)}`, { code: 'listen_failed', cause })
}
