/** Starts a server program on this machine. */

import type { Clock } from '../../../foundation/clock.ts'
import { findFreePort } from '../../../runtime/server/free-port.ts'
import { GuardedServer } from '../../../runtime/server/guarded-server.ts'
import type { ServerAddress, ServerProcess } from '../../../runtime/server/node-servers.ts'
import { runServer } from '../../../runtime/server/node-servers.ts'

export interface LocalServerOptions {
  readonly host: string
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** The complete environment of the server. Nothing else is inherited. */
  readonly env: Readonly<Record<string, string>>
  /** The environment of the guard process, which ends the server when this process ends. */
  readonly guardEnv: Readonly<Record<string, string>>
  readonly clock: Clock
  readonly onLine: (line: string) => void
}

const graceMs = 10_000

export function startLocalServer(options: LocalServerOptions): ServerProcess {
  const { host, toCommand, ...rest } = options
  let server: GuardedServer | undefined
  let isStopped = false
  const { launched, ended } = runServer(async (launch) => {
    const address = { host, port: await findFreePort(host) }
    if (isStopped) throw new Error('it was stopped')
    server = new GuardedServer({ ...rest, command: toCommand(address), graceMs })
    server.launched.then(() => launch.resolve(address), launch.reject)
    return server.ended
  })
  return {
    launched,
    ended,
    get output() {
      return server?.output ?? ''
    },
    unref: () => server?.unref(),
    async stop() {
      isStopped = true
      await server?.stop()
      await ended
    },
  }
}
