/** A server program on this machine, behind the port of servers on nodes. */

import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import { findFreePort } from '../../../runtime/server/free-port.ts'
import { GuardedServer } from '../../../runtime/server/guarded-server.ts'
import type { ServerAddress, ServerProcess } from '../../../runtime/server/node-servers.ts'

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
  readonly #options: LocalServerOptions
  readonly #launched = Promise.withResolvers<ServerAddress>()
  readonly #ended = Promise.withResolvers<string>()
  #server: GuardedServer | null = null
  #isStopped = false

  constructor(options: LocalServerOptions) {
    this.#options = options
    this.#launched.promise.catch(() => {})
    void this.#run()
  }

  get launched(): Promise<ServerAddress> {
    return this.#launched.promise
  }

  get ended(): Promise<string> {
    return this.#ended.promise
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
    await this.#ended.promise
  }

  async #run(): Promise<void> {
    const { host, toCommand, env, guardEnv, clock, onLine } = this.#options
    try {
      const address = { host, port: await findFreePort(host) }
      if (this.#isStopped) throw new Error('it was stopped')
      const command = toCommand(address)
      const server = new GuardedServer({ command, env, guardEnv, graceMs, clock, onLine })
      this.#server = server
      server.launched.then(
        () => this.#launched.resolve(address),
        (error: unknown) => this.#launched.reject(error),
      )
      this.#ended.resolve(await server.ended)
    } catch (error) {
      this.#launched.reject(error)
      this.#ended.resolve(messageOf(error))
    }
  }
}
