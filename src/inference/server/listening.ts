/** Where the server is reached: checks the address before, and explains why it cannot be had. */

import type { Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { hostname, networkInterfaces } from 'node:os'
import { errnoOf, InferenceError, messageOf, ValueError } from '../../foundation/errors.ts'
import { isLoopback } from '../../foundation/loopback.ts'
import { expectInteger, expectString } from '../../foundation/options.ts'

/** The host name of this machine, as responses and addresses carry it. */
export const machineName = hostname()

const everywhere = new Set(['0.0.0.0', '::', '[::]'])

/** Refuses an address that nobody can listen at, and one that is open to others without a key. */
export function expectReachable(address: {
  readonly host: string
  readonly port: number
  readonly apiKey: string | null
}): void {
  const { host, apiKey } = address
  expectString('host', host)
  expectInteger('port', address.port, { min: 0, max: 65_535 })
  if (apiKey !== null) expectString('apiKey', apiKey)
  else if (!isLoopback(host)) {
    throw new ValueError(`Expected \`apiKey\` to be set, because others can reach \`${host}\``, {
      field: 'apiKey',
      expected: 'a key, or a loopback `host` such as 127.0.0.1',
      got: null,
      hint: 'Give an `apiKey`, or `host: "127.0.0.1"` to serve programs of this machine alone.',
    })
  }
}

/** The port that it listens at, or an error that says what to do. */
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
 * The names by which the server may be called. An address is as safe as our own name: a foreign
 * page that is led here comes with a name of its own.
 */
export function knownHosts(host: string, interfaces = networkInterfaces): readonly string[] {
  const own = ['localhost', '127.0.0.1', '[::1]', machineName, bracketed(host)]
  return everywhere.has(host) ? [...own, ...addressesOf(interfaces)] : own
}

/** None where the system does not tell them: the names are answered to all the same. */
function addressesOf(interfaces: typeof networkInterfaces): readonly string[] {
  try {
    const all = Object.values(interfaces()).flatMap((addresses) => addresses ?? [])
    return all.map(({ address }) => bracketed(address))
  } catch {
    return []
  }
}

/** The address for clients. */
export function endpointOf(host: string, port: number): string {
  return `http://${everywhere.has(host) ? machineName : bracketed(host)}:${port}`
}

const bare = (host: string): string => host.replace(/^\[(.*)\]$/, '$1')
const bracketed = (host: string): string => (bare(host).includes(':') ? `[${bare(host)}]` : host)

/** Why the address cannot be had, and what to do about it. */
export function listenError(host: string, port: number, cause: Error): InferenceError {
  const errno = errnoOf(cause)
  if (errno === 'EADDRINUSE') {
    return new InferenceError(`port ${port} in use; try --port 0`, {
      code: 'port_in_use',
      hint: `see who listens: ss -ltnp 'sport = :${port}'`,
      cause,
    })
  }
  if (errno === 'EACCES' || errno === 'EPERM') {
    return new InferenceError(`no right to listen on port ${port}; try --port 8000`, {
      code: 'port_forbidden',
      hint: 'ports below 1024 need special rights',
      cause,
    })
  }
  if (errno === 'ENOTFOUND' || errno === 'EAI_AGAIN' || errno === 'EADDRNOTAVAIL') {
    return new InferenceError(`cannot listen on port ${port} of host ${host}: it is not ours`, {
      code: 'host_unknown',
      hint: 'use 127.0.0.1, or 0.0.0.0 for every network',
      cause,
    })
  }
  return new InferenceError(`cannot listen on port ${port} of ${host}: ${messageOf(cause)}`, {
    code: 'listen_failed',
    cause,
  })
}
