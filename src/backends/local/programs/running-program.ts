/** One program from its start to its end: its time limit, its usage, and how it is stopped. */

import { systemClock as clock } from '../../../foundation/clock.ts'
import { isGroupAlive, signalGroup } from '../../../runtime/process-group.ts'
import { readUsage } from './proc-usage.ts'
import type { ProgramUsage, StopCause } from './protocol.ts'
import type { ExitStatus } from './spawner.ts'

/** Younger programs cost neither a message of their own nor a look at their usage. */
const settleMs = 5
const longestSampleMs = 1000
const shortestPollMs = 5
const longestPollMs = 100
/** How long killed processes may take to be gone: those that wait for a disk may take for ever. */
const longestBurialMs = 1000

export interface ProgramLimits {
  readonly timeoutMs: number | null
  readonly graceMs: number
}

export interface ProgramEvents {
  /** It runs for some milliseconds already. */
  settled(): void
  /** It is over; if it was stopped, its whole group is. */
  over(status: ExitStatus, stoppedBy: StopCause | null): void
}

export class RunningProgram {
  readonly pid: number
  readonly #limits: ProgramLimits
  readonly #events: ProgramEvents
  #usage: ProgramUsage = {}
  #stoppedBy: StopCause | null = null
  #isKilled = false
  #hasEnded = false
  #cancelSample: () => void
  #cancelDeadline: () => void = () => {}

  constructor(pid: number, limits: ProgramLimits, events: ProgramEvents) {
    this.pid = pid
    this.#limits = limits
    this.#events = events
    this.#cancelSample = clock.after(settleMs, () => this.#settle())
    if (limits.timeoutMs !== null) {
      this.#cancelDeadline = clock.after(limits.timeoutMs, () => this.stop('timeout'))
    }
  }

  /** SIGTERM to the group, and after the grace SIGKILL. The first cause counts. */
  stop(cause: StopCause): void {
    if (this.#stoppedBy !== null || this.#hasEnded) return
    this.#stoppedBy = cause
    this.#cancelDeadline()
    signalGroup(this.pid, 'SIGTERM')
    this.#cancelDeadline = clock.after(this.#limits.graceMs, () => this.kill())
  }

  kill(): void {
    this.#isKilled = true
    signalGroup(this.pid, 'SIGKILL')
  }

  /** The program itself has ended. */
  end(status: ExitStatus): void {
    this.#hasEnded = true
    this.#cancelSample()
    const whole = { ...this.#usage, ...status }
    if (this.#stoppedBy === null) return this.#finish(whole)
    this.#awaitGroup(whole, shortestPollMs, longestBurialMs)
  }

  #awaitGroup(status: ExitStatus, pollMs: number, patienceMs: number): void {
    if (patienceMs <= 0 || !isGroupAlive(this.pid)) return this.#finish(status)
    // Another SIGKILL finds what was forked at the moment of the first.
    if (this.#isKilled) signalGroup(this.pid, 'SIGKILL')
    const left = this.#isKilled ? patienceMs - pollMs : patienceMs
    const next = this.#isKilled ? shortestPollMs : Math.min(pollMs * 2, longestPollMs)
    clock.after(pollMs, () => this.#awaitGroup(status, next, left))
  }

  #finish(status: ExitStatus): void {
    this.#cancelDeadline()
    this.#events.over(status, this.#stoppedBy)
  }

  #settle(): void {
    this.#events.settled()
    this.#sample(settleMs)
  }

  /** At ever greater distances: a long run costs no more looks than a short one. */
  #sample(intervalMs: number): void {
    this.#usage = { ...this.#usage, ...readUsage(this.pid) }
    const next = Math.min(intervalMs * 2, longestSampleMs)
    this.#cancelSample = clock.after(intervalMs, () => this.#sample(next))
  }
}
