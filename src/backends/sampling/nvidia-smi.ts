/** Reads GPUs through one `nvidia-smi` process that prints a line per GPU at an interval. */

import { type ChildProcess, spawn } from 'node:child_process'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { clampPercent } from './reading.ts'
import { type GpuReading, type GpuSource, maxWaitMs, type ProbeResult } from './sampler.ts'

export interface NvidiaSmiOptions {
  readonly clock: Clock
  readonly pollSeconds: number
}

interface Known extends GpuReading {
  readonly atMs: number
}

/** The minimum time between two starts: starting a process blocks the event loop. */
const restartMs = 60_000
/** The longest time between two lines, which limits the age of a reading. */
const maxPeriodMs = 1000
const minPeriodMs = 100

/**
 * Uses one process for the whole run; one per poll would cost 23 ms and a fork of the orchestrator
 * each time. A reading becomes `null` if it is not renewed within its period plus 2 s. If no
 * reading is renewed, the program hangs and is killed.
 */
export class NvidiaSmi implements GpuSource {
  readonly name = 'nvidia-smi'
  readonly #clock: Clock
  readonly #periodMs: number
  readonly #known = new Map<number, Known>()
  #stream: SmiStream | undefined
  #startedMs = 0

  constructor(options: NvidiaSmiOptions) {
    this.#clock = options.clock
    const pollMs = Math.round(options.pollSeconds * 1000)
    this.#periodMs = Math.min(maxPeriodMs, Math.max(minPeriodMs, pollMs))
  }

  async probe(): Promise<ProbeResult> {
    const stream = this.#start()
    const first = await stream.firstOutcome
    if (first !== 'reading') return first
    stream.unref()
    return { state: 'ready' }
  }

  async sample(): Promise<readonly GpuReading[]> {
    const nowMs = this.#clock.monotonicMs()
    if (this.#stream === undefined && nowMs - this.#startedMs >= restartMs) this.#start().unref()
    const oldestMs = nowMs - this.#periodMs - maxWaitMs
    if (this.#isSilentSince(oldestMs)) await this.#letOutputArrive()
    if (this.#isSilentSince(oldestMs)) {
      const reason = this.#stream?.failure ?? 'gives no readings'
      await this.close()
      throw new Error(reason)
    }
    const known = [...this.#known.values()].toSorted((a, b) => a.gpu_id - b.gpu_id)
    return known.map(({ gpu_id, gpu_percent, atMs }) => ({
      gpu_id,
      gpu_percent: atMs < oldestMs ? null : gpu_percent,
    }))
  }

  async close(): Promise<void> {
    const stream = this.#stream
    this.#stream = undefined
    await stream?.kill()
  }

  #isSilentSince(ms: number): boolean {
    return this.#startedMs < ms && [...this.#known.values()].every(({ atMs }) => atMs < ms)
  }

  /**
   * If the event loop was busy, output may still wait unread. One of the next two turns reads it,
   * whatever phase the current turn is in.
   */
  #letOutputArrive(): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.nextTurn(() => this.#clock.nextTurn(resolve))
    })
  }

  #start(): SmiStream {
    this.#startedMs = this.#clock.monotonicMs()
    const stream = new SmiStream(this.#periodMs, (reading) => {
      this.#known.set(reading.gpu_id, { ...reading, atMs: this.#clock.monotonicMs() })
    })
    this.#stream = stream
    return stream
  }
}

/** Longer than any valid line. */
const maxLineLength = 4096

/** The process and its output, cut into lines. */
class SmiStream {
  readonly firstOutcome: Promise<'reading' | Exclude<ProbeResult, { state: 'ready' }>>
  readonly #child: ChildProcess
  readonly #exited: Promise<void>
  #rest = ''
  #lastUnread = ''
  #end = 'gives no readings'

  constructor(periodMs: number, take: (reading: GpuReading) => void) {
    // In a process group of its own, so that Ctrl-C does not reach nvidia-smi. If this process is
    // killed, nvidia-smi ends when it writes its next line into the closed pipe.
    const child: ChildProcess = spawn('nvidia-smi', [...gpuQuery, `--loop-ms=${periodMs}`], {
      stdio: ['ignore', 'pipe', 'ignore'],
      detached: true,
      windowsHide: true,
    })
    this.#child = child
    this.#exited = new Promise((resolve) => {
      child.once('exit', () => resolve())
      child.on('error', () => resolve())
    })
    this.firstOutcome = new Promise((resolve) => {
      // `stdout` is missing if no descriptor was free for it.
      child.stdout?.on('error', () => {})
      child.stdout?.setEncoding('latin1').on('data', (chunk: string) => {
        for (const line of this.#cut(chunk)) {
          const reading = parseGpuLine(line)
          if (reading === undefined) this.#lastUnread = line.trim().slice(0, 200)
          else take(reading)
          if (reading !== undefined) resolve('reading')
        }
      })
      child.once('error', (error) => {
        this.#end = `cannot be started (${errnoOf(error)})`
        resolve({ state: errnoOf(error) === 'ENOENT' ? 'absent' : 'broken', reason: this.failure })
      })
      child.once('close', (code, signal) => {
        this.#end = `ended with ${signal ?? `code ${code}`}`
        resolve({ state: 'broken', reason: this.failure })
      })
    })
  }

  /** Why the program failed, as text for users. */
  get failure(): string {
    return this.#lastUnread === '' ? this.#end : `${this.#end}, saying "${this.#lastUnread}"`
  }

  /** From now on, the program does not keep this process alive. */
  unref(): void {
    this.#child.unref()
    const { stdout } = this.#child
    if (stdout !== null && 'unref' in stdout && typeof stdout.unref === 'function') stdout.unref()
  }

  /** Resolves when the process has exited. */
  async kill(): Promise<void> {
    this.#child.ref()
    this.#child.kill('SIGKILL')
    this.#child.stdout?.destroy()
    await this.#exited
  }

  #cut(chunk: string): string[] {
    const lines = (this.#rest + chunk).split('\n')
    this.#rest = lines.pop() ?? ''
    if (this.#rest.length > maxLineLength) this.#rest = ''
    return lines
  }
}

/** The query whose lines `parseGpuLine` reads. */
export const gpuQuery: readonly string[] = [
  '--query-gpu=index,utilization.gpu',
  '--format=csv,noheader,nounits',
]

/** More than any machine has; a larger number is not an index. */
const maxGpus = 1024

/**
 * Parses a line such as `0, 37`. The usage is `null` for a GPU without a value (`[N/A]`). Returns
 * `undefined` for any other text.
 */
export function parseGpuLine(line: string): GpuReading | undefined {
  const fields = /^\s*(\d{1,4})\s*,\s*(?:(-?\d+(?:\.\d+)?)\s*%?|\[[^\]]*\])\s*$/.exec(line)
  if (fields === null || Number(fields[1]) >= maxGpus) return undefined
  const gpu_id = Number(fields[1])
  return { gpu_id, gpu_percent: fields[2] === undefined ? null : clampPercent(Number(fields[2])) }
}
