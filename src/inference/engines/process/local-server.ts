/** A server program on this machine, which implements `ServerProcess`. */

import type { Clock } from '../../../foundation/clock.ts'
import { findFreePort } from '../../../runtime/server/free-port.ts'
import { GuardedServer } from '../../../runtime/server/guarded-server.ts'
import type { ServerAddress, ServerProcess } from '../../../runtime/server/node-servers.ts'
import { runServer } from '../../../runtime/server/run-server.ts'

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
