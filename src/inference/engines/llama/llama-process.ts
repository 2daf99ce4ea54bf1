/** The engine's end of the model's process: starts it, talks to it, notices its death, ends it. */

import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { boundedWait } from '../../../foundation/promises.ts'
import type { Clock } from '../../../foundation/clock.ts'
import { messageOf } from '../../../foundation/errors.ts'
import type { ProcessExit } from './exit-reason.ts'
import type { FromLlama, ToLlama } from './protocol.ts'

const extension = import.meta.url.endsWith('.ts') ? 'ts' : 'js'
const program = fileURLToPath(new URL(`./llama-program.${extension}`, import.meta.url))

/** Names of what a model's process has no use for: secrets, and what is meant for this Node. */
const secret = /TOKEN|SECRET|PASSWORD|PASSWD|API_?KEY|PRIVATE_KEY|ACCESS_KEY|CREDENTIAL/i
const ofThisNode = /^NODE_(?:OPTIONS|V8_COVERAGE|CHANNEL_FD|UNIQUE_ID)$/
const graceMs = 2000
const tailLength = 8192

export interface LlamaProcessOptions {
  readonly clock: Clock
  onMessage(message: FromLlama): void
  /** Called once. */
  onExit(exit: ProcessExit): void
}

export class LlamaProcess {
  readonly #options: LlamaProcessOptions
  readonly #child: ChildProcess
  readonly #gone = Promise.withResolvers<void>()
  #tail = ''
  #hasExited = false

  constructor(options: LlamaProcessOptions) {
    this.#options = options
    this.#child = fork(program, [], {
      execArgv: ['--no-warnings'],
      env: fitEnvironment(),
      // A group of its own: the terminal's Ctrl-C is for the main process to handle.
      detached: true,
      serialization: 'advanced',
      stdio: ['ignore', 'ignore', 'pipe', 'ipc'],
    })
    this.#child.on('message', (message) => options.onMessage(message as FromLlama))
    this.#child.stderr?.setEncoding('utf8').on('data', (text: string) => {
      this.#tail = (this.#tail + text).slice(-tailLength)
    })
    // All is read: the streams and the channel are closed, too.
    this.#child.on('close', (code, signal) => this.#leave({ code, signal, stderr: this.#tail }))
    this.#child.on('error', (error) => {
      if (this.#child.pid !== undefined) return
      this.#leave({ code: null, signal: null, stderr: messageOf(error) })
    })
  }

  get pid(): number | undefined {
    return this.#child.pid
  }

  /** A process that cannot hear is dying; its exit tells the rest. */
  send(message: ToLlama): void {
    if (this.#child.connected) this.#child.send(message, () => {})
  }

  /** Resolves when the process is gone. */
  async close(): Promise<void> {
    if (this.#hasExited) return
    this.#child.kill('SIGTERM')
    try {
      await boundedWait(this.#options.clock, graceMs, this.#gone.promise)
    } catch {
      this.#child.kill('SIGKILL')
      await this.#gone.promise
    }
  }

  #leave(exit: ProcessExit): void {
    if (this.#hasExited) return
    this.#hasExited = true
    this.#gone.resolve()
    this.#options.onExit(exit)
  }
}

function fitEnvironment(): NodeJS.ProcessEnv {
  // The library does not load where CI is set to anything but a boolean.
  const isFit = ([name]: [string, unknown]): boolean =>
    name !== 'CI' && !secret.test(name) && !ofThisNode.test(name)
  return Object.fromEntries(Object.entries(process.env).filter(isFit))
}
