/** Reads GPUs through one `nvidia-smi` process, which repeatedly prints one line per GPU. */

import { type ChildProcess, spawn } from 'node:child_process'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf } from '../../foundation/errors.ts'
import { clampPercent } from './reading.ts'
import { type GpuReading, type GpuSource, readTimeoutMs, type ProbeResult } from './sampler.ts'

export interface NvidiaSmiOptions {
  readonly clock: Clock
  readonly pollSeconds: number
}

interface TimedReading extends GpuReading {
  readonly atMs: number
}

/** The minimum time between two starts, because starting a process blocks the event loop. */
const minRestartMs = 60_000
/** The maximum time between two lines of a GPU, which also limits the age of a reading. */
const maxPeriodMs = 1000
const minPeriodMs = 100

/**
 * One process for the whole run, because a process per poll costs 23 ms. A reading becomes `null`
 * if it is not renewed. If none is renewed, the process is killed.
 */
export class NvidiaSmi implements GpuSource {
  readonly name = 'nvidia-smi'
  readonly #clock: Clock
  readonly #periodMs: number
  readonly #readings = new Map<number, TimedReading>()
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
    if (this.#stream === undefined && nowMs - this.#startedMs >= minRestartMs) this.#start().unref()
    const oldestMs = nowMs - this.#periodMs - readTimeoutMs
    if (this.#isSilentSince(oldestMs)) await this.#letOutputArrive()
    if (this.#isSilentSince(oldestMs)) {
      const reason = this.#stream?.failure ?? 'gives no readings'
      await this.close()
      throw new Error(reason)
    }
    const known = [...this.#readings.values()].toSorted((a, b) => a.gpu_id - b.gpu_id)
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
    return this.#startedMs < ms && [...this.#readings.values()].every(({ atMs }) => atMs < ms)
  }

  /** Output may be unread because the event loop was busy. One of the next two turns reads it. */
  #letOutputArrive(): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.nextTurn(() => this.#clock.nextTurn(resolve))
    })
  }

  #start(): SmiStream {
    this.#startedMs = this.#clock.monotonicMs()
    const stream = new SmiStream(this.#periodMs, (reading) => {
      this.#readings.set(reading.gpu_id, { ...reading, atMs: this.#clock.monotonicMs() })
    })
    this.#stream = stream
    return stream
  }
}

const maxLineLength = 4096

class SmiStream {
  readonly firstOutcome: Promise<'reading' | Exclude<ProbeResult, { state: 'ready' }>>
  readonly #child: ChildProcess
  readonly #exited: Promise<void>
  #partialLine = ''
  #lastUnparsed = ''
  #exitText = 'gives no readings'

  constructor(periodMs: number, onReading: (reading: GpuReading) => void) {
    // Ctrl-C does not reach it. If this process is killed, it ends at its next line.
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
      // `stdout` is missing if there was no free descriptor for it.
      child.stdout?.on('error', () => {})
      child.stdout?.setEncoding('latin1').on('data', (chunk: string) => {
        for (const line of this.#splitLines(chunk)) {
          const reading = parseGpuLine(line)
          if (reading === undefined) this.#lastUnparsed = line.trim().slice(0, 200)
          else onReading(reading)
          if (reading !== undefined) resolve('reading')
        }
      })
      child.once('error', (error) => {
        this.#exitText = `cannot be started (${errnoOf(error)})`
        resolve({ state: errnoOf(error) === 'ENOENT' ? 'absent' : 'broken', reason: this.failure })
      })
      child.once('close', (code, signal) => {
        this.#exitText = `ended with ${signal ?? `code ${code}`}`
        resolve({ state: 'broken', reason: this.failure })
      })
    })
  }

  get failure(): string {
    return this.#lastUnparsed === ''
      ? this.#exitText
      : `${this.#exitText}, saying "${this.#lastUnparsed}"`
  }

  unref(): void {
    this.#child.unref()
    const { stdout } = this.#child
    if (stdout !== null && 'unref' in stdout && typeof stdout.unref === 'function') stdout.unref()
  }

  async kill(): Promise<void> {
    this.#child.ref()
    this.#child.kill('SIGKILL')
    this.#child.stdout?.destroy()
    await this.#exited
  }

  #splitLines(chunk: string): string[] {
    const lines = (this.#partialLine + chunk).split('\n')
    this.#partialLine = lines.pop() ?? ''
    if (this.#partialLine.length > maxLineLength) this.#partialLine = ''
    return lines
  }
}

/** The query whose lines `parseGpuLine` reads. */
export const gpuQuery: readonly string[] = [
  '--query-gpu=index,utilization.gpu',
  '--format=csv,noheader,nounits',
]

/** More GPUs than any machine has. A larger number is not an index. */
const maxGpus = 1024

/** The usage is `null` for a GPU without a value (`[N/A]`). `undefined` for any other text. */
export function parseGpuLine(line: string): GpuReading | undefined {
  const fields = /^\s*(\d{1,4})\s*,\s*(?:(-?\d+(?:\.\d+)?)\s*%?|\[[^\]]*\])\s*$/.exec(line)
  if (fields === null || Number(fields[1]) >= maxGpus) return undefined
  const gpu_id = Number(fields[1])
  return { gpu_id, gpu_percent: fields[2] === undefined ? null : clampPercent(Number(fields[2])) }
}
