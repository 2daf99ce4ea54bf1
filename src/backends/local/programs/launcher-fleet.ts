/** Keeps the launcher processes: starts them when needed, spreads the load, replaces lost ones. */

import type { Clock } from '../../../foundation/clock.ts'
import { BackOff } from '../../../runtime/back-off.ts'
import { groupsOfSession, signalGroup } from '../../../runtime/process-group.ts'
import {
  exitReason,
  nodeVariables,
  siblingProgram,
  SupervisedChild,
} from '../../../runtime/supervised-child.ts'
import type { LauncherSetup, ProgramUpdate, ProgramRequest, ToLauncher } from './protocol.ts'

/** Small: a launcher holds little, and what it starts is first a copy of it. */
const nodeFlags = [
  '--v8-pool-size=1',
  '--max-semi-space-size=2',
  '--max-old-space-size=512',
  '--no-warnings',
]
/** For launchers that exit before they have reported anything. */
const startBackOff = { firstDelayMs: 100, maxDelayMs: 2000, giveUpAfter: 5 }
/** Beyond it, a pool that closes kills its launchers. */
const graceMs = 10_000

export interface FleetOptions {
  readonly size: number
  readonly idPrefix: string
  readonly clock: Clock
  readonly setup: Omit<LauncherSetup, 'environment'>
  /** In the order in which things happened. */
  onUpdates(updates: readonly ProgramUpdate[]): void
  onLost(launcher: Launcher, reason: string): void
}

export class LauncherFleet {
  readonly #options: FleetOptions
  readonly #launchers: Launcher[] = []
  readonly #startFailures = new BackOff(startBackOff)
  #count = 0
  #isClosing = false

  constructor(options: FleetOptions) {
    this.#options = options
  }

  /** Whether launchers exit before they start anything, again and again. */
  get hasGivenUp(): boolean {
    return this.#startFailures.hasGivenUp(this.#options.clock.monotonicMs())
  }

  /** The least loaded launcher; `release` must follow. */
  take(): Launcher {
    const idle = this.#launchers.find(({ load }) => load === 0)
    const launcher =
      idle ??
      (this.#launchers.length < this.#options.size
        ? this.#add()
        : this.#launchers.reduce((least, other) => (other.load < least.load ? other : least)))
    launcher.load++
    launcher.child.ref()
    return launcher
  }

  release(launcher: Launcher): void {
    launcher.load--
    launcher.child.unref()
  }

  /** Resolves when all launchers have exited. */
  async close(): Promise<void> {
    this.#isClosing = true
    await Promise.all(this.#launchers.map(({ child }) => child.close()))
  }

  kill(): void {
    for (const { child } of this.#launchers) child.kill()
  }

  #add(): Launcher {
    const { clock, setup } = this.#options
    const environment = Object.fromEntries(nodeVariables.map((name) => [name, process.env[name]]))
    const env = { ...process.env }
    for (const name of nodeVariables) delete env[name]
    const child = new SupervisedChild<ToLauncher, ProgramUpdate>({
      program: siblingProgram(import.meta.url, 'launcher'),
      clock,
      execArgv: nodeFlags,
      env,
      isDetached: true,
      stdout: 'ignore',
      graceMs,
      startDelayMs: this.#startFailures.delayMs(clock.monotonicMs()),
      firstMessage: { kind: 'setup', setup: { ...setup, environment } },
      onMessages: (updates) => {
        this.#startFailures.reset()
        launcher.hasReported = true
        this.#options.onUpdates(updates)
      },
      onExit: (exit) => this.#onExit(launcher, exitReason(exit)),
    })
    const launcher = new Launcher(`${this.#options.idPrefix}/p${++this.#count}`, child)
    this.#launchers.push(launcher)
    return launcher
  }

  #onExit(launcher: Launcher, reason: string): void {
    const at = this.#launchers.indexOf(launcher)
    if (at !== -1) this.#launchers.splice(at, 1)
    if (!launcher.hasReported && !this.#isClosing) {
      this.#startFailures.fail(this.#options.clock.monotonicMs(), new Error(reason))
    }
    if (launcher.load > 0) killUnreported(launcher.child.pid)
    this.#options.onLost(launcher, reason)
  }
}

export class Launcher {
  readonly id: string
  readonly child: SupervisedChild<ToLauncher, ProgramUpdate>
  /** How many programs it was asked for that have not ended. */
  load = 0
  hasReported = false

  constructor(id: string, child: SupervisedChild<ToLauncher, ProgramUpdate>) {
    this.id = id
    this.child = child
  }

  /** Requests of one turn of the loop are sent in one batch. */
  request(request: ProgramRequest): void {
    this.child.post({ kind: 'start', request })
  }

  /** `true` if the request was not sent: then it never will be. */
  withdraw(id: number): boolean {
    return this.child.withdraw((message) => message.kind === 'start' && message.request.id === id)
  }

  stop(id: number): void {
    this.child.post({ kind: 'stop', id })
  }
}

/** Its session may hold programs whose start a lost launcher had no time to report. */
function killUnreported(session: number | undefined): void {
  if (session === undefined) return
  for (const group of groupsOfSession(session)) signalGroup(group, 'SIGKILL')
}
