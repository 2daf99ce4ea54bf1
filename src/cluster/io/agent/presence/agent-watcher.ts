/**
 * A small process with its own connection, which reports that an agent's process has exited.
 * Without it, a dead agent looks like a broken link.
 */

import type { Clock } from '../../../../foundation/clock.ts'
import { messageOf } from '../../../../foundation/errors.ts'
import type { Log } from '../../../../foundation/log.ts'
import { supervise, type SupervisedRun } from '../../../../runtime/retry.ts'
import {
  exitReason,
  siblingProgram,
  SupervisedChild,
} from '../../../../runtime/supervised-child.ts'
import type { NatsOptions } from '../../../broker/nats.ts'
import type { Announcement } from '../../../wire/messages.ts'

export type WatcherInput =
  | {
      readonly kind: 'start'
      readonly connection: Omit<NatsOptions, 'log'>
      readonly token: string
    }
  | { readonly kind: 'alive'; readonly agent: Announcement }

export type WatcherOutput = { readonly kind: 'connected' }

export interface AgentWatcherOptions {
  readonly name: string
  readonly connection: NatsOptions
  readonly token: string
  readonly clock: Clock
  readonly log: Log
}

const restartPolicy = { firstDelayMs: 500, maxDelayMs: 60_000, steadyMs: 0 }
/** Limits the memory of the watcher, which needs little beyond its connection. */
const nodeOptions = ['--max-old-space-size=48', '--max-semi-space-size=1']

/** Starts the watcher process, and restarts it whenever it exits, until `close` is called. */
export class AgentWatcher {
  readonly #options: AgentWatcherOptions
  readonly #closing = new AbortController()
  readonly #ready = Promise.withResolvers<void>()
  #child: SupervisedChild<WatcherInput, WatcherOutput> | null = null
  #agent: Announcement | null = null
  #hasWarned = false

  constructor(options: AgentWatcherOptions) {
    this.#options = options
    const { clock } = options
    const { signal } = this.#closing
    const run = (current: SupervisedRun): Promise<string> => this.#run(current)
    supervise(restartPolicy, run, { clock, signal, background: true }).catch((error: unknown) => {
      options.log.warn('WatcherLost', messageOf(error))
    })
  }

  /** Resolves after the watcher's first attempt to connect, even if the attempt failed. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  update(agent: Announcement): void {
    this.#agent = agent
    if (this.#child?.isReady === true) this.#child.send({ kind: 'alive', agent })
  }

  /** Stops the watcher process. Call it after the agent has announced that it leaves. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#ready.resolve()
    await this.#child?.close()
  }

  async #run({ onReady }: SupervisedRun): Promise<string> {
    const { promise: ended, resolve: end } = Promise.withResolvers<string>()
    const { connection, token, clock } = this.#options
    const { log: _, ...rest } = connection
    const child = new SupervisedChild<WatcherInput, WatcherOutput>({
      program: siblingProgram(import.meta.url, 'watcher-program'),
      clock,
      execArgv: nodeOptions,
      // A signal to the agent's process group, such as Ctrl-C, must not stop the watcher.
      isDetached: true,
      stdout: 'ignore',
      stderr: 'capture',
      firstMessage: { kind: 'start', connection: rest, token },
      onReady: () => {
        if (this.#agent !== null) child.send({ kind: 'alive', agent: this.#agent })
      },
      onMessages: () => {
        onReady()
        this.#ready.resolve()
      },
      onExit: (exit) => end(exit.output === '' ? exitReason(exit) : exit.output),
    })
    this.#child = child
    child.start()
    const reason = await ended
    this.#ready.resolve()
    this.#warn(reason)
    return reason
  }

  #warn(reason: string): void {
    const { log, name } = this.#options
    if (this.#hasWarned || this.#closing.signal.aborted) return
    this.#hasWarned = true
    const text =
      `the watcher of agent "${name}" has ended and is started again (${reason}); until then ` +
      'drivers notice the end of this agent by its silence'
    log.warn('WatcherLost', text)
  }
}
