/** Manages the launchers: starts them on demand, balances their load, replaces lost ones. */

import type { Clock } from '../../../foundation/clock.ts'
import { Restarts } from '../../../runtime/retry.ts'
import { errnoOf } from '../../../foundation/errors.ts'
import { boundedWait } from '../../../foundation/promises.ts'
import { findGroups, signalGroup } from '../../../runtime/process-group.ts'
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
  isResourceShortage,
  type LauncherMessage,
  launcherVariable,
  type LauncherSetup,
  type ProgramRequest,
  type ProgramUpdate,
  type LauncherCommand,
} from './protocol.ts'

/** These flags keep a launcher small, because every program starts as a copy of it. */
const nodeFlags = [
  '--v8-pool-size=1',
  '--max-semi-space-size=2',
  '--max-old-space-size=512',
  '--no-warnings',
]
/** The delays between starts of launchers, if launchers exit before they can start programs. */
export const restartPolicy = { firstDelayMs: 1000, maxDelayMs: 30_000, giveUpAfter: 5 }
const exitGraceMs = 10_000
/** The delays between starts after the system refused a start for lack of resources. */
const refusalBackOff = { firstDelayMs: 100, maxDelayMs: 5000 }
const pingsPerDeadline = 3

export interface LauncherFleetOptions {
  readonly size: number
  readonly idPrefix: string
  readonly clock: Clock
  readonly setup: Omit<LauncherSetup, 'environment'>
  /** A launcher that has programs is lost if it does not answer within this time. */
  readonly answerTimeoutMs: number
  /** Called with updates, in the order in which they happened. */
  onUpdates(updates: readonly ProgramUpdate[]): void
  onLost(launcher: Launcher, reason: string): void
  /** Called when a launcher ended before it could start programs. */
  onStartFailed(isNewDelay: boolean): void
  onStartRecovered(): void
  /** Called when resources for a launcher are lacking. The next start is after `delayMs`. */
  onRefused(errno: string, delayMs: number, isFirst: boolean): void
}

export class LauncherFleet {
  readonly #options: LauncherFleetOptions
  readonly #launchers: Launcher[] = []
  readonly starts = new Restarts(restartPolicy)
  readonly #refusals = new Restarts(refusalBackOff)
  #count = 0
  readonly #silence: SilenceWatch<Launcher>
  #isClosing = false

  constructor(options: LauncherFleetOptions) {
    const { clock, answerTimeoutMs } = options
    const intervalMs = answerTimeoutMs / pingsPerDeadline
    this.#options = options
    this.#silence = new SilenceWatch({
      clock,
      intervalMs,
      // The extra 1 ms adds one interval, because the first ping may be sent a whole interval after
      // the last message. The launcher then has `answerTimeoutMs` to answer.
      maxSilenceMs: () => answerTimeoutMs + 1,
      expected: () => this.#launchers.filter(({ load, child }) => load > 0 && child.isReady),
      onCheck: (launchers) => {
        for (const { child } of launchers) child.post({ kind: 'ping' })
      },
      onHung: (launchers) => this.#loseHung(launchers),
    })
  }

  get isEmpty(): boolean {
    return this.#launchers.length === 0
  }

  get hasStarted(): boolean {
    return this.#launchers.some(({ hasReported }) => hasReported)
  }

  get hasGivenUp(): boolean {
    return !this.hasStarted && this.starts.hasGivenUp(this.#options.clock.monotonicMs())
  }

  /** Returns an idle, a new or the least loaded launcher. The caller must `release` it. */
  acquire(): Launcher {
    const idle = this.#launchers.find(({ load }) => load === 0)
    const launcher =
      idle ??
      (this.#hasRoom
        ? this.#add()
        : this.#launchers.reduce((min, other) => (other.load < min.load ? other : min)))
    if (launcher.load++ === 0) this.#silence.recordActivity(launcher)
    launcher.child.ref()
    return launcher
  }

  /**
   * Whether another launcher may be started. While starts are refused or fail, the running
   * launchers take all programs.
   */
  get #hasRoom(): boolean {
    const { clock, size } = this.#options
    if (this.isEmpty) return true
    if (this.#launchers.length >= size || this.#refusals.failures > 0) return false
    return this.starts.canStart(() => clock.monotonicMs())
  }

  release(launcher: Launcher): void {
    launcher.load--
    launcher.child.unref()
  }

  async endBackground(owner: string): Promise<void> {
    const { clock, setup } = this.#options
    const asked = this.#launchers.filter(({ owners }) => owners.has(owner))
    await Promise.all(asked.map((each) => each.endBackground(owner, clock, setup.graceMs)))
  }

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
    const startDelayMs = Math.max(0, this.starts.nextStartMs - nowMs)
    const child = new SupervisedChild<LauncherCommand, LauncherMessage>({
      program: siblingProgram(import.meta.url, 'launcher'),
      clock,
      execArgv: nodeFlags,
      env,
      isDetached: true,
      stdout: 'ignore',
      graceMs: exitGraceMs,
      startDelayMs,
      firstMessage: { kind: 'setup', setup: { ...setup, environment } },
      // The deadline is long, because a launcher that is not ready has no programs to lose.
      readyDeadlineMs: 2 * this.#options.answerTimeoutMs,
      onReady: () => this.#silence.recordActivity(launcher),
      onMessages: (messages) => this.#receive(launcher, messages),
      onExit: (exit) => this.#onExit(launcher, exit),
    })
    const id = `${this.#options.idPrefix}/p${++this.#count}`
    const round = this.starts.begin(nowMs + startDelayMs)
    const launcher = new Launcher(id, child, { mark: `${launcherVariable}=${mark}`, round })
    this.#launchers.push(launcher)
    return launcher
  }

  #receive(launcher: Launcher, messages: readonly LauncherMessage[]): void {
    this.#refusals.succeed()
    launcher.hasReported = true
    if (this.starts.succeed()) this.#options.onStartRecovered()
    this.#silence.recordActivity(launcher)
    // The programs of a lost launcher are already reported as lost.
    if (launcher.isLost) return
    const updates: ProgramUpdate[] = []
    for (const message of messages) {
      if (message.kind === 'backgroundEnded') launcher.onBackgroundEnded(message.owner)
      else if (message.kind === 'output') launcher.onOutput(message.id, message.output)
      else if (message.kind !== 'pong') updates.push(message)
    }
    if (updates.length > 0) this.#options.onUpdates(updates)
  }

  #loseHung(silent: readonly Launcher[]): void {
    const reason = `it did not answer for ${this.#options.answerTimeoutMs / 1000} s`
    for (const launcher of silent) {
      launcher.isSilent = true
      // All hung launchers are removed first, so that none of them gets the programs of another.
      this.#remove(launcher)
      // SIGKILL ends even a stopped process. A process that waits for a disk may exit much later.
      launcher.child.kill()
    }
    for (const launcher of silent) this.#lose(launcher, reason, true)
  }

  #onExit(launcher: Launcher, exit: ChildExit): void {
    const errno = errnoOf(exit.error)
    if (launcher.child.pid === undefined && isResourceShortage(errno))
      return this.#handleRefusal(launcher, errno)
    const isUnexpected = !this.#isClosing || exit.code !== 0
    this.#lose(launcher, exitReason(exit), isUnexpected)
  }

  /** Handles a launcher that the system refused to start. Its programs wait. */
  #handleRefusal(launcher: Launcher, errno: string): void {
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
    const mayLeaveProcesses = launcher.isLost || load > 0 || owners.size > 0
    if (isUnexpected && mayLeaveProcesses) killLeftovers(launcher)
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
  readonly child: SupervisedChild<LauncherCommand, LauncherMessage>
  /** The variable, as `NAME=value`, that the launcher's programs have in their environment. */
  readonly mark: string
  readonly round: number
  load = 0
  hasReported = false
  silentMs = 0
  isSilent = false
  isRefused = false
  isLost = false
  /** Ids of sessions whose ended programs left background processes. */
  readonly owners = new Set<string>()
  readonly #ending = new Map<string, PromiseWithResolvers<void>>()
  readonly #outputs = new Map<number, PromiseWithResolvers<CapturedOutput | null>>()

  constructor(
    id: string,
    child: SupervisedChild<LauncherCommand, LauncherMessage>,
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
      await boundedWait(clock, programGraceMs + exitGraceMs, ended.promise)
    } catch {
      // Killing the launcher also ends the remaining background processes.
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

  /**
   * Requests the start of a program. All requests of one turn of the event loop are sent together.
   */
  request(request: ProgramRequest): void {
    this.child.post({ kind: 'start', request })
  }

  withdraw(id: number): boolean {
    return this.child.withdraw((message) => message.kind === 'start' && message.request.id === id)
  }

  stop(id: number): void {
    this.child.post({ kind: 'stop', id })
  }

  output(id: number): Promise<CapturedOutput | null> {
    if (this.isLost) return Promise.resolve(null)
    const asked = this.#outputs.get(id) ?? Promise.withResolvers<CapturedOutput | null>()
    this.#outputs.set(id, asked)
    this.child.post({ kind: 'output', id })
    return asked.promise
  }

  onOutput(id: number, output: CapturedOutput | null): void {
    this.#outputs.get(id)?.resolve(output)
    this.#outputs.delete(id)
  }

  dropOutputs(): void {
    for (const id of this.#outputs.keys()) this.onOutput(id, null)
  }
}

/**
 * Kills what a lost launcher leaves: background processes, and programs that it did not report.
 * They are found by the launcher's POSIX session (with koffi) or by its mark.
 */
function killLeftovers({ child: { pid }, mark }: Launcher): void {
  if (pid === undefined) return
  for (const group of findGroups(pid, mark)) signalGroup(group, 'SIGKILL')
}
