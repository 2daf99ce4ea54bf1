/** One program from its start to its end: its time limit, its usage, and how it is stopped. */

import { readFileSync } from 'node:fs'
import { systemClock as clock } from '../../../foundation/clock.ts'
import {
  isProcessAlive,
  isProgramAlive,
  signalProgram,
  type StartedProgram,
} from '../../../runtime/process-group.ts'
import { parseTicks, ticksPerSecond } from '../../sampling/own-cpu.ts'
import type { ProgramUsage, StopCause } from './protocol.ts'
import type { ExitStatus } from './spawner.ts'

/** Shorter programs cause neither a message at their start nor a sample of their usage. */
const settleMs = 5
const maxSampleMs = 1000
const minPollMs = 5
const maxPollMs = 100
/** How long killed processes may take to disappear; one that waits for a disk may never do so. */
const maxKilledMs = 1000

export interface ProgramLimits {
  readonly timeoutMs: number | null
  readonly graceMs: number
  /** Whether the program's exit ends the rest of its process group. */
  readonly killBackground: boolean
  /** Identifies the program's processes outside of its group; `null` if they are not followed. */
  readonly mark: string | null
}

export interface ProgramEvents {
  /** The program has run for `settleMs`. */
  settled(): void
  /** The program has ended, with its whole group if it was stopped or `killBackground` is set. */
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
      this.#cancelDeadline = clock.after(limits.timeoutMs, () => this.#timeOut())
    }
  }

  get #program(): StartedProgram {
    return { pid: this.pid, mark: this.#limits.mark }
  }

  /** Sends SIGTERM to the group, and SIGKILL after the grace period. The first cause counts. */
  stop(cause: StopCause): void {
    if (this.#stoppedBy !== null || this.#hasEnded) return
    this.#stoppedBy = cause
    this.#endGroup()
  }

  kill(): void {
    this.#isKilled = true
    signalProgram(this.#program, 'SIGKILL')
  }

  /** The program itself has ended; its group may still have members. */
  end(status: ExitStatus): void {
    this.#hasEnded = true
    this.#cancelSample()
    const whole = { ...this.#usage, ...status }
    if (this.#stoppedBy === null) {
      const { killBackground, mark } = this.#limits
      const hasLeft = status.hasBackground || (mark !== null && isProgramAlive(this.#program))
      if (!hasLeft || !killBackground) return this.#finish(whole)
      this.#endGroup()
    }
    this.#awaitGroup({ ...whole, hasBackground: false }, minPollMs, maxKilledMs)
  }

  /**
   * Spares a program that has already ended: if this process was suspended, it notices a timely
   * exit late.
   */
  #timeOut(): void {
    if (isProcessAlive(this.pid)) this.stop('timeout')
  }

  #endGroup(): void {
    this.#cancelDeadline()
    signalProgram(this.#program, 'SIGTERM')
    this.#cancelDeadline = clock.after(this.#limits.graceMs, () => this.kill())
  }

  #awaitGroup(status: ExitStatus, pollMs: number, patienceMs: number): void {
    if (patienceMs <= 0 || !isProgramAlive(this.#program)) return this.#finish(status)
    // SIGKILL is repeated, because a process that was forked during the first one did not get it.
    if (this.#isKilled) signalProgram(this.#program, 'SIGKILL')
    const left = this.#isKilled ? patienceMs - pollMs : patienceMs
    const next = this.#isKilled ? minPollMs : Math.min(pollMs * 2, maxPollMs)
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

  /** Samples at growing intervals, so that a long program costs few samples. */
  #sample(intervalMs: number): void {
    this.#usage = { ...this.#usage, ...readUsage(this.pid) }
    const next = Math.min(intervalMs * 2, maxSampleMs)
    this.#cancelSample = clock.after(intervalMs, () => this.#sample(next))
  }
}

/** The usage so far, including children that were waited for; `{}` if the process has ended. */
export function readUsage(pid: number): ProgramUsage {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return { ...parseCpu(stat), ...parsePeak(status) }
  } catch {
    return {}
  }
}

export function parseCpu(stat: string): ProgramUsage {
  const ticks = parseTicks(stat)
  return ticks === null ? {} : { cpuSeconds: ticks / ticksPerSecond }
}

export function parsePeak(status: string): ProgramUsage {
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]
  return kilobytes === undefined ? {} : { peakMemoryBytes: Number(kilobytes) * 1024 }
}
