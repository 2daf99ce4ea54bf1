/** A server program on this machine, behind the port of servers on nodes. */

import type { Clock } from '../../../foundation/clock.ts'
import { findFreePort } from '../../../runtime/server/free-port.ts'
import { GuardedServer } from '../../../runtime/server/guarded-server.ts'
import type { ServerAddress, ServerProcess } from '../../../runtime/server/node-servers.ts'
import { runServer } from '../../../runtime/server/run-server.ts'

export interface LocalServerOptions {
  /** It listens there. */
  readonly host: string
  readonly toCommand: (address: ServerAddress) => readonly string[]
  /** All of it. */
  readonly env: Readonly<Record<string, string>>
  /** Of the process that ends the server with this one. */
  readonly guardEnv: Readonly<Record<string, string>>
  readonly clock: Clock
  /** Each line of its output. */
  readonly onLine: (line: string) => void
}

/** Between SIGTERM and SIGKILL. */
const graceMs = 10_000

/** Runs from its construction. */
export class LocalServer implements ServerProcess {
  readonly launched: Promise<ServerAddress>
  readonly ended: Promise<string>
  readonly #options: LocalServerOptions
  #server: GuardedServer | null = null
  #isStopped = false

  constructor(options: LocalServerOptions) {
    this.#options = options
    const { launched, ended } = runServer((launch) => this.#run(launch))
    this.launched = launched
    this.ended = ended
  }

  get output(): string {
    return this.#server?.output ?? ''
  }

  unref(): void {
    this.#server?.unref()
  }

  async stop(): Promise<void> {
    this.#isStopped = true
    await this.#server?.stop()
    await this.ended
  }

  async #run(launch: PromiseWithResolvers<ServerAddress>): Promise<string> {
    const { host, toCommand, env, guardEnv, clock, onLine } = this.#options
    const address = { host, port: await findFreePort(host) }
    if (this.#isStopped) throw new Error('it was stopped')
    const command = toCommand(address)
    const server = new GuardedServer({ command, env, guardEnv, graceMs, clock, onLine })
    this.#server = server
    server.launched.then(() => launch.resolve(address), launch.reject)
    return server.ended
  }
}
