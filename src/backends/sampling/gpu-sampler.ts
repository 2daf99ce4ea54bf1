/** Samples this machine's GPUs through one `nvidia-smi` process, and handles its failures. */

import { type ChildProcess, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import type { Clock } from '../../foundation/clock.ts'
import { errnoOf, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { clampPercent, type GpuReading, readTimeoutMs, withReadTimeout } from './sampler.ts'

export interface GpuSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  readonly pollSeconds: number
  readonly procRoot?: string
}

interface TimedReading extends GpuReading {
  readonly atMs: number
}

/** The minimum time between two starts, because starting a process blocks the event loop. */
const minRestartMs = 60_000
/** The maximum time between two output lines about a GPU. It also limits the age of a reading. */
const maxPeriodMs = 1000
const minPeriodMs = 100

/**
 * Uses one process for the whole run, because starting one per poll costs 23 ms. A reading that is
 * not renewed becomes `null`. If no reading is renewed, the process is killed. Never rejects, and
 * waits at most 2 s. Warns once, but not if both the driver and `nvidia-smi` are absent.
 */
export class GpuSampler {
  readonly #clock: Clock
  readonly #log: Log
  readonly #driverFile: string
  readonly #periodMs: number
  readonly #readings = new Map<number, TimedReading>()
  #stream: SmiStream | undefined
  #startedMs = 0
  #isReady = false
  #isWarned = false

  constructor({ clock, log, pollSeconds, procRoot = '/proc' }: GpuSamplerOptions) {
    this.#clock = clock
    this.#log = log
    this.#driverFile = `${procRoot}/driver/nvidia/version`
    this.#periodMs = Math.min(maxPeriodMs, Math.max(minPeriodMs, Math.round(pollSeconds * 1000)))
  }

  /** Whether the GPUs can be read. Set by `prime`. */
  get isReady(): boolean {
    return this.#isReady
  }

  async prime(): Promise<void> {
    try {
      const stream = this.#start()
      const outcome = await withReadTimeout(this.#clock, stream.firstOutcome)
      this.#isReady = outcome === 'reading'
      if (this.#isReady) return stream.unref()
      if (outcome === 'broken' || existsSync(this.#driverFile)) this.#warn(stream.failure)
    } catch (error) {
      this.#warn(messageOf(error))
    }
    await this.close()
  }

  /** Reads the GPUs. If that fails, returns the last known GPUs with a usage of `null`. */
  async sample(): Promise<readonly GpuReading[]> {
    if (!this.#isReady) return []
    const nowMs = this.#clock.monotonicMs()
    if (this.#stream === undefined && nowMs - this.#startedMs >= minRestartMs) this.#start().unref()
    const oldestMs = nowMs - this.#periodMs - readTimeoutMs
    if (this.#isSilentSince(oldestMs)) await this.#letOutputArrive()
    if (this.#isSilentSince(oldestMs)) {
      this.#warn(this.#stream?.failure ?? 'gives no readings')
      await this.#kill()
    }
    const known = [...this.#readings.values()].toSorted((a, b) => a.gpu_id - b.gpu_id)
    return known.map(({ gpu_id, gpu_percent, atMs }) => ({
      gpu_id,
      gpu_percent: atMs < oldestMs ? null : gpu_percent,
    }))
  }

  async close(): Promise<void> {
    this.#isReady = false
    await this.#kill()
  }

  async #kill(): Promise<void> {
    const stream = this.#stream
    this.#stream = undefined
    try {
      if (stream !== undefined) await withReadTimeout(this.#clock, stream.kill())
    } catch (error) {
      this.#warn(messageOf(error))
    }
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
    this.#stream = new SmiStream(this.#periodMs, (reading) => {
      this.#readings.set(reading.gpu_id, { ...reading, atMs: this.#clock.monotonicMs() })
    })
    return this.#stream
  }

  #warn(reason: string): void {
    if (this.#isWarned) return
    this.#isWarned = true
    this.#log.warn('GpuUnreadable', `GPU utilization is unknown: nvidia-smi: ${reason}`)
  }
}

const maxLineLength = 4096

/** A running `nvidia-smi`, which repeatedly prints one line per GPU. */
class SmiStream {
  /** `absent` if the machine has no such program, `broken` if it ended without a reading. */
  readonly firstOutcome: Promise<'reading' | 'absent' | 'broken'>
  readonly #child: ChildProcess
  readonly #exited: Promise<void>
  #partialLine = ''
  #lastUnparsed = ''
  #exitText = 'gives no readings'

  constructor(periodMs: number, onReading: (reading: GpuReading) => void) {
    // Detached, so that Ctrl-C does not end `nvidia-smi`. If this process exits, `nvidia-smi` ends
    // at its next write.
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
        resolve(errnoOf(error) === 'ENOENT' ? 'absent' : 'broken')
      })
      child.once('close', (code, signal) => {
        if (child.pid !== undefined) this.#exitText = `ended with ${signal ?? `code ${code}`}`
        resolve('broken')
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

/**
 * Parses a line of `gpuQuery`; returns `undefined` for other text. The usage of a GPU without a
 * value (`[N/A]`) is `null`.
 */
export function parseGpuLine(line: string): GpuReading | undefined {
  const fields = /^\s*(\d{1,4})\s*,\s*(?:(-?\d+(?:\.\d+)?)\s*%?|\[[^\]]*\])\s*$/.exec(line)
  if (fields === null || Number(fields[1]) >= maxGpus) return undefined
  const gpu_id = Number(fields[1])
  return { gpu_id, gpu_percent: fields[2] === undefined ? null : clampPercent(Number(fields[2])) }
}
