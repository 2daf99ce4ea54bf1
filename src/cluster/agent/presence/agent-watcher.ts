/**
 * A small process beside an agent, with its own connection. It reports to drivers at once when the
 * agent's process has ended unannounced. Without a watcher this cannot be distinguished from a
 * broken link: in both cases the agent does not answer, and the server has seen the connection end.
 */

import type { Clock } from '../../../foundation/clock.ts'
import type { Log } from '../../../foundation/log.ts'
import { BackOff } from '../../../runtime/back-off.ts'
import { exitReason, siblingProgram, SupervisedChild } from '../../../runtime/supervised-child.ts'
import type { NatsOptions } from '../../broker/nats.ts'
import type { Announcement } from '../../wire/messages.ts'

export type ToWatcher =
  | {
      readonly kind: 'start'
      readonly connection: Omit<NatsOptions, 'log'>
      readonly token: string
    }
  /** The agent is alive; sent with every announcement. */
  | { readonly kind: 'alive'; readonly agent: Announcement }

export type FromWatcher = { readonly kind: 'connected' }

export interface AgentWatcherOptions {
  /** The agent's name. */
  readonly name: string
  readonly connection: NatsOptions
  readonly token: string
  readonly clock: Clock
  readonly log: Log
}

/** The watcher needs little memory: it has hardly more than a connection. */
const nodeOptions = ['--max-old-space-size=48', '--max-semi-space-size=1']

/** Restarts the watcher process whenever it ends, until this is closed. */
export class AgentWatcher {
  readonly #options: AgentWatcherOptions
  readonly #backOff = new BackOff({ firstDelayMs: 500, maxDelayMs: 60_000 })
  readonly #ready = Promise.withResolvers<void>()
  #child: SupervisedChild<ToWatcher, FromWatcher>
  #agent: Announcement | null = null
  #isClosed = false
  #hasWarned = false
  #cancelStart: () => void = () => {}

  constructor(options: AgentWatcherOptions) {
    this.#options = options
    this.#child = this.#start()
  }

  /** Resolves when the watcher has connected for the first time, or has failed to. */
  get ready(): Promise<void> {
    return this.#ready.promise
  }

  update(agent: Announcement): void {
    this.#agent = agent
    if (this.#child.isReady) this.#child.send({ kind: 'alive', agent })
  }

  /** For an agent that has announced its own end. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelStart()
    this.#ready.resolve()
    await this.#child.close()
  }

  #start(): SupervisedChild<ToWatcher, FromWatcher> {
    const { connection, token, clock } = this.#options
    const { log: _, ...rest } = connection
    const child = new SupervisedChild<ToWatcher, FromWatcher>({
      program: siblingProgram(import.meta.url, 'watcher-program'),
      clock,
      execArgv: nodeOptions,
      // A signal to the agent's process group, such as Ctrl-C, must not end the watcher.
      isDetached: true,
      stdout: 'ignore',
      stderr: 'capture',
      firstMessage: { kind: 'start', connection: rest, token },
      onReady: () => {
        if (this.#agent !== null) child.send({ kind: 'alive', agent: this.#agent })
      },
      onMessages: () => {
        this.#backOff.reset()
        this.#ready.resolve()
      },
      onExit: (exit) => this.#restart(exit.output === '' ? exitReason(exit) : exit.output),
    })
    child.start()
    return child
  }

  #restart(reason: string): void {
    this.#ready.resolve()
    if (this.#isClosed) return
    const { clock, log, name } = this.#options
    const delayMs = this.#backOff.fail(clock.monotonicMs())
    this.#cancelStart = clock.after(
      delayMs,
      () => {
        this.#child = this.#start()
      },
      { background: true },
    )
    if (this.#hasWarned) return
    this.#hasWarned = true
    const text =
      `the watcher of agent "${name}" has ended and is started again (${reason}); until then ` +
      'drivers notice the end of this agent by its silence'
    log.warn('WatcherLost', text)
  }
}
