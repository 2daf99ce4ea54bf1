/** The server's address: checks it, listens on it, and explains why that failed. */

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { errnoOf, InferenceError, messageOf, ValueError } from '../../foundation/errors.ts'
import { isLoopbackHost } from '../../foundation/options.ts'
import { expectInteger, expectString } from '../../foundation/options.ts'

/** The host name of this machine, as responses and addresses carry it. */
export const machineName = hostname()

const wildcards = new Set(['0.0.0.0', '::', '[::]'])

/** Rejects an invalid address, and one that other machines can reach without an API key. */
export function expectReachable(address: {
  readonly host: string
  readonly port: number
  readonly apiKey: string | null
}): void {
  const { host, apiKey } = address
  expectString('host', host)
  expectInteger('port', address.port, { min: 0, max: 65_535 })
  if (apiKey !== null) expectString('apiKey', apiKey)
  else if (!isLoopbackHost(host)) {
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

/** Resolves with the actual port; rejects with an error that says what to do. */
export function listen(server: Server, host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const fail = (cause: Error): void => reject(listenError(host, port, cause))
    server.once('error', fail)
    server.listen(port, bare(host), () => {
      server.off('error', fail)
      resolve((server.address() as AddressInfo).port)
    })
  })
}

/**
 * The `Host` headers that the server accepts. Addresses are as safe as its own name: a web page
 * that attacks by DNS rebinding sends the name of its own host.
 */
export function knownHosts(host: string, interfaces = networkInterfaces): readonly string[] {
  const own = ['localhost', '127.0.0.1', '[::1]', machineName, bracketed(host)]
  return wildcards.has(host) ? [...own, ...addressesOf(interfaces)] : own
}

/** Empty where the system does not reveal them; the names are accepted all the same. */
function addressesOf(interfaces: typeof networkInterfaces): readonly string[] {
  try {
    const all = Object.values(interfaces()).flatMap((addresses) => addresses ?? [])
    return all.map(({ address }) => bracketed(address))
  } catch {
    return []
  }
}

/** The URL for clients. */
export function endpointOf(host: string, port: number): string {
  return `http://${wildcards.has(host) ? machineName : bracketed(host)}:${port}`
}

const bare = (host: string): string => host.replace(/^\[(.*)\]$/, '$1')
const bracketed = (host: string): string => (bare(host).includes(':') ? `[${bare(host)}]` : host)

/** Why listening failed, and what to do about it. */
export function listenError(host: string, port: number, cause: Error): InferenceError {
  const errno = errnoOf(cause)
  if (errno === 'EADDRINUSE') {
    return new InferenceError(`port ${port} in use; try --port 0`, {
      code: 'port_in_use',
      hint: `find the process that listens: ss -ltnp 'sport = :${port}'`,
      cause,
    })
  }
  if (errno === 'EACCES' || errno === 'EPERM') {
    return new InferenceError(`no permission to listen on port ${port}; try --port 8000`, {
      code: 'port_forbidden',
      hint: 'ports below 1024 need elevated privileges',
      cause,
    })
  }
  if (errno === 'ENOTFOUND' || errno === 'EAI_AGAIN' || errno === 'EADDRNOTAVAIL') {
    return new InferenceError(
      `cannot listen on port ${port} of ${host}: address not available on this host`,
      {
        code: 'host_unknown',
        hint: 'use 127.0.0.1, or 0.0.0.0 for all network interfaces',
        cause,
      },
    )
  }
  return new InferenceError(`cannot listen on port ${port} of ${host}: ${messageOf(cause)}`, {
    code: 'listen_failed',
    cause,
  })
}
