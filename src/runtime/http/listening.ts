/** The server's address: validates it, listens on it, and explains failures to listen. */

import { lookup } from 'node:dns/promises'
import type { Server as HttpServer } from 'node:http'
import { type AddressInfo, createServer, isIPv4, type Server } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf, messageOf, ValueError } from '../../foundation/errors.ts'
import {
  expectInteger,
  expectSecret,
  expectString,
  isLoopbackHost,
} from '../../foundation/options.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { ErrorReplies } from './http-error.ts'

/** The host name of this machine, as it appears in responses and addresses. */
export const machineName = hostname()

const wildcards = new Set(['0.0.0.0', '::', '[::]'])

/** Rejects an invalid address, and an address that other machines can reach without an API key. */
export function expectReachable(address: {
  readonly host: string | null
  readonly port: number
  readonly apiKey: string | null
}): void {
  const { host, apiKey } = address
  if (host !== null) expectString('host', host)
  expectInteger('port', address.port, { min: 0, max: 65_535 })
  if (apiKey !== null) expectSecret('apiKey', apiKey)
  else if (host !== null && !isLoopbackHost(host)) {
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

/** Queries about this machine; tests replace them. */
export interface Machine {
  readonly interfaces: typeof networkInterfaces
  /**
   * The addresses that this machine's name resolves to. Rejects or takes long if there are none.
   */
  readonly addresses: () => Promise<readonly string[]>
}

const thisMachine: Machine = {
  interfaces: networkInterfaces,
  addresses: async () => (await lookup(machineName, { all: true })).map(({ address }) => address),
}

/** The maximum time for resolving this machine's own name. */
const lookupMs = 2000
const loopback = '127.0.0.1'

export interface Listening {
  /**
   * The URL for clients: with this machine's name if that reaches this server, otherwise an
   * address.
   */
  readonly endpoint: string
  readonly port: number
  /** The `Host` headers that the server accepts, without port. */
  readonly hosts: readonly string[]
  /** Resolves when no connection is left. */
  close(): Promise<void>
}

type ListenErrors = Pick<ErrorReplies, 'toListenError'>

export interface ListenOptions {
  /** `null`: loopback, and the loopback address that this machine's name resolves to. */
  readonly host: string | null
  /** 0 chooses a free port. */
  readonly port: number
  readonly clock: Clock
  readonly errors: ListenErrors
}

/** Rejects with an error that says what to do. */
export async function openListening(
  server: HttpServer,
  { host, port: wanted, clock, errors }: ListenOptions,
  machine: Machine = thisMachine,
): Promise<Listening> {
  const named = await boundedWait(clock, lookupMs, machine.addresses()).catch(() => [])
  const port = await listen(server, host ?? loopback, wanted, errors)
  const servers: Server[] = [server]
  const close = async (): Promise<void> => {
    await Promise.all(servers.map((one) => new Promise((resolve) => one.close(resolve))))
  }
  const bound = [(server.address() as AddressInfo).address]
  for (const other of host === null ? named : []) {
    if (!isLoopbackHost(other) || bound.includes(other)) continue
    // The HTTP server takes over the connections of another server through its `connection` event.
    const second = createServer({ allowHalfOpen: true, noDelay: true }, (socket) => {
      server.emit('connection', socket)
    })
    try {
      await listen(second, other, port, errors)
      servers.push(second)
      bound.push(other)
    } catch (error) {
      // Listening on the machine's name is optional, but a requested port must be free.
      if (wanted === 0 || errnoOf(error) !== 'port_in_use') continue
      await close()
      throw error
    }
  }
  const isHere = reachedBy(bound, machine.interfaces)
  const hosts = [...knownHosts(host ?? loopback, machine.interfaces), ...bound.map(bracketed)]
  const isNamed = named.length > 0 && named.every(isHere)
  const client = isNamed ? machineName : addressFor(host ?? loopback, machine.interfaces)
  return { endpoint: `http://${client}:${port}`, port, hosts: [...new Set(hosts)], close }
}

/** Resolves with the actual port; rejects with an error that says what to do. */
function listen(server: Server, host: string, port: number, errors: ListenErrors): Promise<number> {
  return new Promise((resolve, reject) => {
    const fail = (cause: Error): void => reject(listenError(errors, host, port, cause))
    server.once('error', fail)
    server.listen(port, bare(host), () => {
      server.off('error', fail)
      resolve((server.address() as AddressInfo).port)
    })
  })
}

/** Whether a client on this machine that connects to an address would reach a bound address. */
function reachedBy(bound: readonly string[], interfaces: typeof networkInterfaces) {
  const own = new Set(addressesOf(interfaces).map(bare))
  const isOwn = (address: string): boolean => isLoopbackHost(address) || own.has(address)
  return (address: string): boolean => {
    if (bound.includes(address)) return true
    const isAnyBound = bound.includes('::') || (bound.includes('0.0.0.0') && isIPv4(address))
    return isAnyBound && isOwn(address)
  }
}

/**
 * The address in a client's URL. For a server on all interfaces: the first address that other
 * machines can reach.
 */
function addressFor(host: string, interfaces: typeof networkInterfaces): string {
  if (!wildcards.has(host)) return bracketed(host)
  const others = addressesOf(interfaces).filter((address) => !isLoopbackHost(address))
  return others.find(isIPv4) ?? others[0] ?? loopback
}

/**
 * The `Host` headers that the server accepts. Addresses are as safe as the machine's name: a page
 * that attacks by DNS rebinding sends its own host name.
 */
export function knownHosts(host: string, interfaces = networkInterfaces): readonly string[] {
  const own = ['localhost', '127.0.0.1', '[::1]', machineName, bracketed(host)]
  return wildcards.has(host) ? [...own, ...addressesOf(interfaces)] : own
}

/** Empty if the system does not reveal its addresses. Host names are accepted nevertheless. */
function addressesOf(interfaces: typeof networkInterfaces): readonly string[] {
  try {
    const all = Object.values(interfaces()).flatMap((addresses) => addresses ?? [])
    return all.map(({ address }) => bracketed(address))
  } catch {
    return []
  }
}

const bare = (host: string): string => host.replace(/^\[(.*)\]$/, '$1')
const bracketed = (host: string): string => (bare(host).includes(':') ? `[${bare(host)}]` : host)

/** Why listening failed, and what to do about it. */
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
