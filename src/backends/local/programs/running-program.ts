/** One program: its time limit, its resource usage, and how it is stopped. */

import { readFileSync } from 'node:fs'
import { systemClock as clock } from '../../../foundation/clock.ts'
import {
  isProcessAlive,
  isProgramAlive,
  signalProgram,
  type StartedProgram,
} from '../../../runtime/process-group.ts'
import { parseCpuTicks, ticksPerSecond } from '../../sampling/process-tree-cpu.ts'
import type { ProgramUsage, StopCause } from './protocol.ts'
import type { ExitStatus } from './spawner.ts'

/** Programs that run for less than this cause no message at their start and no usage sample. */
const settleMs = 5
const maxSampleMs = 1000
const minPollMs = 5
const maxPollMs = 100
/** How long to wait for killed processes. A process that waits for a disk may never exit. */
const maxKillWaitMs = 1000

export interface ProgramLimits {
  readonly timeoutMs: number | null
  readonly graceMs: number
  readonly killBackground: boolean
  /** Identifies the program's processes outside its group; `null` if they are not followed. */
  readonly mark: string | null
}

export interface ProgramListener {
  onSettled(): void
  /** If the program was stopped or `killBackground` is set, its whole group has ended too. */
  onEnd(status: ExitStatus, stoppedBy: StopCause | null): void
}

export class RunningProgram {
  readonly pid: number
  readonly #limits: ProgramLimits
  readonly #listener: ProgramListener
  #usage: ProgramUsage = {}
  #stoppedBy: StopCause | null = null
  #isKilled = false
  #hasEnded = false
  #cancelSample: () => void
  #cancelDeadline: () => void = () => {}

  constructor(pid: number, limits: ProgramLimits, events: ProgramListener) {
    this.pid = pid
    this.#limits = limits
    this.#listener = events
    this.#cancelSample = clock.after(settleMs, () => this.#settle())
    if (limits.timeoutMs !== null) {
      this.#cancelDeadline = clock.after(limits.timeoutMs, () => this.#timeOut())
    }
  }

  get #program(): StartedProgram {
    return { pid: this.pid, mark: this.#limits.mark }
  }

  /** Sends SIGTERM, and SIGKILL after the grace period. Only the first call has an effect. */
  stop(cause: StopCause): void {
    if (this.#stoppedBy !== null || this.#hasEnded) return
    this.#stoppedBy = cause
    this.#endGroup()
  }

  kill(): void {
    this.#isKilled = true
    signalProgram(this.#program, 'SIGKILL')
  }

  /** Called when the program has exited. Its group may still have members. */
  end(status: ExitStatus): void {
    this.#hasEnded = true
    this.#cancelSample()
    const finalStatus = { ...this.#usage, ...status }
    if (this.#stoppedBy === null) {
      const { killBackground, mark } = this.#limits
      const hasProcesses = status.hasBackground || (mark !== null && isProgramAlive(this.#program))
      if (!hasProcesses || !killBackground) return this.#finish(finalStatus)
      this.#endGroup()
    }
    this.#awaitGroup({ ...finalStatus, hasBackground: false }, minPollMs, maxKillWaitMs)
  }

  /** Stops the program at its time limit, unless it exited while this process was suspended. */
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
    // Sends SIGKILL again for processes that were forked since the last one.
    if (this.#isKilled) signalProgram(this.#program, 'SIGKILL')
    const left = this.#isKilled ? patienceMs - pollMs : patienceMs
    const next = this.#isKilled ? minPollMs : Math.min(pollMs * 2, maxPollMs)
    clock.after(pollMs, () => this.#awaitGroup(status, next, left))
  }

  #finish(status: ExitStatus): void {
    this.#cancelDeadline()
    this.#listener.onEnd(status, this.#stoppedBy)
  }

  #settle(): void {
    this.#listener.onSettled()
    this.#sample(settleMs)
  }

  /** Samples the usage at growing intervals, so that a long program needs few samples. */
  #sample(intervalMs: number): void {
    this.#usage = { ...this.#usage, ...readUsage(this.pid) }
    const next = Math.min(intervalMs * 2, maxSampleMs)
    this.#cancelSample = clock.after(intervalMs, () => this.#sample(next))
  }
}

/** The usage so far, including exited children; `{}` if the process has ended. */
export function readUsage(pid: number): ProgramUsage {
  try {
    const stat = readFileSync(`/proc/${pid}/stat`, 'utf8')
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    return { ...parseCpuSeconds(stat), ...parsePeakMemory(status) }
  } catch {
    return {}
  }
}

export function parseCpuSeconds(stat: string): ProgramUsage {
  const ticks = parseCpuTicks(stat)
  return ticks === null ? {} : { cpuSeconds: ticks / ticksPerSecond }
}

export function parsePeakMemory(status: string): ProgramUsage {
  const kilobytes = /^VmHWM:\s+(\d+) kB$/m.exec(status)?.[1]
  return kilobytes === undefined ? {} : { peakMemoryBytes: Number(kilobytes) * 1024 }
}
