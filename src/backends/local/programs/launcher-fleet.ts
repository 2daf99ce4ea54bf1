/** Manages the launcher processes: starts them on demand, balances load, replaces lost ones. */

import type { Clock } from '../../../foundation/clock.ts'
import { Restarts } from '../../../runtime/retry.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import { boundedWait } from '../../../foundation/promises.ts'
import { groupsOf, signalGroup } from '../../../runtime/process-group.ts'
import { SilenceWatch } from '../../../runtime/silence-watch.ts'
import {
  type ChildExit,
  exitReason,
  newChannelId,
  nodeVariables,
  siblingProgram,
  SupervisedChild,
} from '../../../runtime/supervised-child.ts'
import {
  type CapturedOutput,
  isTransient,
  type FromLauncher,
  launcherVariable,
  type LauncherSetup,
  type ProgramRequest,
  type ProgramUpdate,
  type ToLauncher,
} from './protocol.ts'

/** Keeps a launcher small, because every program starts as a copy of its process. */
const nodeFlags = [
  '--v8-pool-size=1',
  '--max-semi-space-size=2',
  '--max-old-space-size=512',
  '--no-warnings',
]
/** The delays between starts while launchers exit before they could start any program. */
export const startPacing = { firstDelayMs: 1000, maxDelayMs: 30_000, giveUpAfter: 5 }
/** How long a launcher may take to exit when the pool closes, before it is killed. */
const graceMs = 10_000
/** The delays after the system refused to start a launcher; it may have the resources later. */
const refusalBackOff = { firstDelayMs: 100, maxDelayMs: 5000 }
/** How often per deadline a launcher that has programs is pinged. */
const pingsPerDeadline = 3

export interface FleetOptions {
  readonly size: number
  readonly idPrefix: string
  readonly clock: Clock
  readonly setup: Omit<LauncherSetup, 'environment'>
  /** A launcher with programs that does not answer for this long is lost. */
  readonly answerMs: number
  /** Updates in the order in which they happened. */
  onUpdates(updates: readonly ProgramUpdate[]): void
  onLost(launcher: Launcher, reason: string): void
  /** A launcher ended before it could start any program. This may have begun a new delay. */
  onStartFailed(isNewDelay: boolean): void
  /** A launcher has started, after earlier launchers failed to start. */
  onStartedAgain(): void
  /** The system lacks resources for a launcher; the next may be requested after the delay. */
  onRefused(errno: string, delayMs: number, isFirst: boolean): void
}

export class LauncherFleet {
  readonly #options: FleetOptions
  readonly #launchers: Launcher[] = []
  /** Paces the starts of launchers. Programs wait while no launcher may be started. */
  readonly starts = new Restarts(startPacing)
  readonly #refusals = new Restarts(refusalBackOff)
  #count = 0
  readonly #silence: SilenceWatch<Launcher>
  #isClosing = false

  constructor(options: FleetOptions) {
    const { clock, answerMs } = options
    const intervalMs = answerMs / pingsPerDeadline
    this.#options = options
    this.#silence = new SilenceWatch({
      clock,
      intervalMs,
      // A launcher may have sent its last message one interval before the first ping.
      hungMs: () => answerMs + intervalMs,
      expected: () => this.#launchers.filter(({ load, child }) => load > 0 && child.isReady),
      onCheck: (launchers) => {
        for (const { child } of launchers) child.post({ kind: 'ping' })
      },
      onHung: (launchers) => this.#loseSilent(launchers),
    })
  }

  get isEmpty(): boolean {
    return this.#launchers.length === 0
  }

  /** Whether some launcher can start programs now. */
  get hasStarted(): boolean {
    return this.#launchers.some(({ hasReported }) => hasReported)
  }

  /** Whether launchers repeatedly exit before they start any program, and none is left. */
  get hasGivenUp(): boolean {
    return !this.hasStarted && this.starts.hasGivenUp(this.#options.clock.monotonicMs())
  }

  /** Returns an idle, new or least loaded launcher. The caller must call `release` later. */
  take(): Launcher {
    const idle = this.#launchers.find(({ load }) => load === 0)
    const launcher =
      idle ??
      (this.#hasRoom
        ? this.#add()
        : this.#launchers.reduce((min, other) => (other.load < min.load ? other : min)))
    if (launcher.load++ === 0) this.#silence.sign(launcher)
    launcher.child.ref()
    return launcher
  }

  /** While launchers are refused or fail to start, the running ones take all programs. */
  get #hasRoom(): boolean {
    const { clock, size } = this.#options
    if (this.isEmpty) return true
    if (this.#launchers.length >= size || this.#refusals.failures > 0) return false
    return this.starts.mayStart(() => clock.monotonicMs())
  }

  release(launcher: Launcher): void {
    launcher.load--
    launcher.child.unref()
  }

  /** Ends the background processes that this owner's programs left behind. */
  async endBackground(owner: string): Promise<void> {
    const { clock, setup } = this.#options
    const asked = this.#launchers.filter(({ owners }) => owners.has(owner))
    await Promise.all(asked.map((each) => each.endBackground(owner, clock, setup.graceMs)))
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
    const mark = `${process.pid}-${newChannelId()}`
    const inherited = nodeVariables.map((name) => [name, process.env[name]] as const)
    const environment = { ...Object.fromEntries(inherited), [launcherVariable]: mark }
    const env = { ...process.env }
    for (const name of nodeVariables) delete env[name]
    const nowMs = clock.monotonicMs()
    const startDelayMs = Math.max(0, this.starts.notBeforeMs - nowMs)
    const child = new SupervisedChild<ToLauncher, FromLauncher>({
      program: siblingProgram(import.meta.url, 'launcher'),
      clock,
      execArgv: nodeFlags,
      env,
      isDetached: true,
      stdout: 'ignore',
      graceMs,
      startDelayMs,
      firstMessage: { kind: 'setup', setup: { ...setup, environment } },
      // Generous: a launcher that is not ready has no programs that could be lost with it.
      readyDeadlineMs: 2 * this.#options.answerMs,
      onReady: () => this.#silence.sign(launcher),
      onMessages: (messages) => this.#receive(launcher, messages),
      onExit: (exit) => this.#onExit(launcher, exit),
    })
    const id = `${this.#options.idPrefix}/p${++this.#count}`
    const round = this.starts.begin(nowMs + startDelayMs)
    const launcher = new Launcher(id, child, { mark: `${launcherVariable}=${mark}`, round })
    this.#launchers.push(launcher)
    return launcher
  }

  #receive(launcher: Launcher, messages: readonly FromLauncher[]): void {
    this.#refusals.succeed()
    launcher.hasReported = true
    if (this.starts.succeed()) this.#options.onStartedAgain()
    this.#silence.sign(launcher)
    // The programs of a lost launcher have already been reported as lost.
    if (launcher.isLost) return
    const updates: ProgramUpdate[] = []
    for (const message of messages) {
      if (message.kind === 'backgroundEnded') launcher.onBackgroundEnded(message.owner)
      else if (message.kind === 'output') launcher.takeOutput(message.id, message.output)
      else if (message.kind !== 'pong') updates.push(message)
    }
    if (updates.length > 0) this.#options.onUpdates(updates)
  }

  #loseSilent(silent: readonly Launcher[]): void {
    const reason = `it did not answer for ${this.#options.answerMs / 1000} s`
    for (const launcher of silent) {
      launcher.isSilent = true
      // All silent launchers are removed first, so that none gets the programs of another.
      this.#remove(launcher)
      // SIGKILL ends even a stopped process; one that waits for a disk may exit much later.
      launcher.child.kill()
    }
    for (const launcher of silent) this.#lose(launcher, reason, true)
  }

  #onExit(launcher: Launcher, exit: ChildExit): void {
    const errno = errnoOf(exit.error)
    if (launcher.child.pid === undefined && isTransient(errno)) return this.#refuse(launcher, errno)
    const isUnexpected = !this.#isClosing || exit.code !== 0
    this.#lose(launcher, exitReason(exit), isUnexpected)
  }

  /** The launcher was never started: nothing is lost, and its programs wait. */
  #refuse(launcher: Launcher, errno: string): void {
    launcher.isRefused = true
    launcher.isLost = true
    this.#remove(launcher)
    const isFirst = this.#refusals.failures === 0
    const delayMs = this.#refusals.fail(this.#options.clock.monotonicMs())
    this.#options.onRefused(errno, delayMs, isFirst)
    this.#options.onLost(launcher, errno)
  }

  #remove(launcher: Launcher): void {
    const at = this.#launchers.indexOf(launcher)
    if (at !== -1) this.#launchers.splice(at, 1)
    launcher.dropOutputs()
  }

  #lose(launcher: Launcher, reason: string, isUnexpected: boolean): void {
    const { load, owners } = launcher
    const mayLeave = launcher.isLost || load > 0 || owners.size > 0
    if (isUnexpected && mayLeave) killLeft(launcher)
    if (launcher.isLost) return
    launcher.isLost = true
    this.#remove(launcher)
    if (!launcher.hasReported && !this.#isClosing) {
      const nowMs = this.#options.clock.monotonicMs()
      const isNewDelay = this.starts.fail(nowMs, new Error(reason), launcher.round) > 0
      this.#options.onStartFailed(isNewDelay)
    }
    for (const owner of owners) launcher.onBackgroundEnded(owner)
    this.#options.onLost(launcher, reason)
  }
}

export class Launcher {
  readonly id: string
  readonly child: SupervisedChild<ToLauncher, FromLauncher>
  /** `NAME=value`, which is in the environment of the launcher's programs. */
  readonly mark: string
  /** The round of the launcher's start, for `Restarts`. */
  readonly round: number
  /** How many programs it was asked to start that have not ended. */
  load = 0
  /** Whether the launcher has reported that it can start programs. */
  hasReported = false
  silentMs = 0
  /** Whether the launcher was given up because it did not answer. */
  isSilent = false
  /** Whether the system refused to start the launcher. */
  isRefused = false
  isLost = false
  /** The sessions whose ended programs left background processes. */
  readonly owners = new Set<string>()
  readonly #ending = new Map<string, PromiseWithResolvers<void>>()
  readonly #outputs = new Map<number, PromiseWithResolvers<CapturedOutput | null>>()

  constructor(
    id: string,
    child: SupervisedChild<ToLauncher, FromLauncher>,
    { mark, round }: Pick<Launcher, 'mark' | 'round'>,
  ) {
    this.id = id
    this.child = child
    this.mark = mark
    this.round = round
  }

  async endBackground(owner: string, clock: Clock, programGraceMs: number): Promise<void> {
    const ended = this.#ending.get(owner) ?? Promise.withResolvers<void>()
    this.#ending.set(owner, ended)
    this.child.post({ kind: 'endBackground', owner })
    this.child.ref()
    try {
      await boundedWait(clock, programGraceMs + graceMs, ended.promise)
    } catch {
      // The launcher's exit ends the remaining background processes.
      this.child.kill()
    } finally {
      this.child.unref()
    }
  }

  onBackgroundEnded(owner: string): void {
    this.owners.delete(owner)
    this.#ending.get(owner)?.resolve()
    this.#ending.delete(owner)
  }

  /** Requests of one turn of the event loop are sent together. */
  request(request: ProgramRequest): void {
    this.child.post({ kind: 'start', request })
  }

  /** Withdraws a request that has not been sent; `false` if it has. */
  withdraw(id: number): boolean {
    return this.child.withdraw((message) => message.kind === 'start' && message.request.id === id)
  }

  stop(id: number): void {
    this.child.post({ kind: 'stop', id })
  }

  /** The output of a program so far; `null` if it is not running, or the launcher is lost. */
  output(id: number): Promise<CapturedOutput | null> {
    if (this.isLost) return Promise.resolve(null)
    const asked = this.#outputs.get(id) ?? Promise.withResolvers<CapturedOutput | null>()
    this.#outputs.set(id, asked)
    this.child.post({ kind: 'output', id })
    return asked.promise
  }

  takeOutput(id: number, output: CapturedOutput | null): void {
    this.#outputs.get(id)?.resolve(output)
    this.#outputs.delete(id)
  }

  dropOutputs(): void {
    for (const id of this.#outputs.keys()) this.takeOutput(id, null)
  }
}

/**
 * Kills background processes, and programs that a lost launcher started but did not report. With
 * koffi, these are in the launcher's session; otherwise, they are found by the launcher's mark.
 */
function killLeft({ child: { pid }, mark }: Launcher): void {
  if (pid === undefined) return
  for (const group of groupsOf(pid, mark)) signalGroup(group, 'SIGKILL')
}
