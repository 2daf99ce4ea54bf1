/** A nats-server of a test: its own port, store and configuration. */

import { type ChildProcess, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { findNatsServer } from '../../src/cluster/broker/nats-program.ts'
import { eventually } from '../eventually.ts'
import { token } from './test-token.ts'

export interface ServerOptions {
  readonly host?: string
  /** Instead of the token of the tests. */
  readonly authorization?: string
  /** Instead of a store in the server's folder. */
  readonly jetstream?: string
  readonly settings?: string
  /** How large its store may be, such as "5MB". */
  readonly storeLimit?: string
}

/** A server that can be killed and started again on its port and store. */
export class RestartableServer {
  readonly folder = mkdtempSync(join(tmpdir(), 'tutti-broker-'))
  readonly port: number
  readonly host: string
  #child: ChildProcess | null = null

  constructor(port: number, options: ServerOptions = {}) {
    this.port = port
    this.host = options.host ?? '127.0.0.1'
    this.configure(options)
    onTestFinished(async () => {
      await this.kill()
      rmSync(this.folder, { recursive: true, force: true })
    })
  }

  /** From its next start on. */
  configure(options: ServerOptions): void {
    const { authorization = `authorization { token: "${token}" }` } = options
    const limit = options.storeLimit === undefined ? '' : `, max_file_store: ${options.storeLimit}`
    writeFileSync(
      join(this.folder, 'server.conf'),
      `listen: "${this.host}:${this.port}"\n${authorization}\n` +
        (options.jetstream ?? `jetstream { store_dir: "${this.folder}/store"${limit} }\n`) +
        `${options.settings ?? ''}\n`,
    )
  }

  get url(): string {
    return `nats://${this.host}:${this.port}`
  }

  async start(): Promise<void> {
    const configuration = join(this.folder, 'server.conf')
    const child = spawn(findNatsServer(), ['-c', configuration], { stdio: 'ignore' })
    this.#child = child
    const ended = once(child, 'exit').then(([code]) => {
      throw new Error(`nats-server at port ${this.port} ended with ${code} before it was ready`)
    })
    const listening = eventually(
      () =>
        new Promise<void>((resolve, reject) => {
          const socket = connect(this.port, this.host, () => {
            socket.destroy()
            resolve()
          })
          socket.on('error', reject)
        }),
    )
    await Promise.race([listening, ended])
  }

  async kill(): Promise<void> {
    const child = this.#child
    if (child === null || child.exitCode !== null || child.signalCode !== null) return
    const ended = new Promise((resolve) => child.on('exit', resolve))
    child.kill('SIGKILL')
    await ended
  }
}
