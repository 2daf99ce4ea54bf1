/** Keeps the launchers: starts them when needed, spreads the load, replaces the dead. */

import type { Clock } from '../../../foundation/clock.ts'
import { LauncherProcess } from './launcher-process.ts'
import { groupsOfSession, signalGroup } from '../../../runtime/process-group.ts'
import type { FromLauncher, LauncherSetup } from './protocol.ts'

/** Deaths in a row, each before any program started, after which launchers are given up. */
const mostStillbirths = 5
const shortestDelayMs = 100
const longestDelayMs = 2000

export interface FleetOptions {
  readonly size: number
  readonly clock: Clock
  readonly setup: Omit<LauncherSetup, 'environment'>
  onNews(news: FromLauncher): void
  onLost(launcher: Launcher, reason: string): void
}

/** A launcher and how many programs it was asked for. */
export interface Launcher {
  readonly process: LauncherProcess
  load: number
}

export class LauncherFleet {
  readonly #options: FleetOptions
  readonly #launchers: Launcher[] = []
  #count = 0
  #stillbirths = 0
  #isClosing = false

  constructor(options: FleetOptions) {
    this.#options = options
  }

  /** Whether launchers die before they start anything, again and again. */
  get isBroken(): boolean {
    return this.#stillbirths >= mostStillbirths
  }

  /** The least loaded launcher; `release` must follow. */
  take(): Launcher {
    const idle = this.#launchers.find(({ load }) => load === 0)
    const launcher =
      idle ??
      (this.#launchers.length < this.#options.size
        ? this.#add()
        : this.#launchers.reduce((least, other) => (other.load < least.load ? other : least)))
    if (launcher.load++ === 0) launcher.process.setBusy(true)
    return launcher
  }

  release(launcher: Launcher): void {
    if (--launcher.load === 0) launcher.process.setBusy(false)
  }

  /** Lets all go; resolves when they are gone. */
  async close(): Promise<void> {
    this.#isClosing = true
    await Promise.all(this.#launchers.map((launcher) => launcher.process.close()))
  }

  kill(): void {
    for (const launcher of this.#launchers) launcher.process.kill()
  }

  #add(): Launcher {
    const { clock, setup } = this.#options
    const process = new LauncherProcess({
      id: `p${++this.#count}`,
      clock,
      setup,
      delayMs:
        this.#stillbirths === 0
          ? 0
          : Math.min(shortestDelayMs * 2 ** (this.#stillbirths - 1), longestDelayMs),
      onNews: (news) => {
        this.#stillbirths = 0
        launcher.hasSpoken = true
        this.#options.onNews(news)
      },
      onExit: (reason) => this.#bury(launcher, reason),
    })
    const launcher = { process, load: 0, hasSpoken: false }
    this.#launchers.push(launcher)
    return launcher
  }

  #bury(launcher: Launcher & { readonly hasSpoken: boolean }, reason: string): void {
    const at = this.#launchers.indexOf(launcher)
    if (at !== -1) this.#launchers.splice(at, 1)
    if (!launcher.hasSpoken && !this.#isClosing) this.#stillbirths++
    if (launcher.load > 0) killUntold(launcher.process.pid)
    this.#options.onLost(launcher, reason)
  }
}

/** A session may hold programs of which its launcher had no time to tell. */
function killUntold(session: number | undefined): void {
  if (session === undefined) return
  for (const group of groupsOfSession(session)) signalGroup(group, 'SIGKILL')
}
