/** A running `nvidia-smi`, which repeatedly prints one line per GPU. */

import { type ChildProcess, spawn } from 'node:child_process'
import { errnoOf } from '../../foundation/errors.ts'
import { clampPercent } from './reading.ts'
import type { GpuReading } from './sampler.ts'

const maxLineLength = 4096

export class SmiStream {
  /** `absent` if the machine has no such program, `broken` if it ended without a reading. */
  readonly firstOutcome: Promise<'reading' | 'absent' | 'broken'>
  readonly #child: ChildProcess
  readonly #exited: Promise<void>
  #partialLine = ''
  #lastUnparsed = ''
  #exitText = 'gives no readings'

  constructor(periodMs: number, onReading: (reading: GpuReading) => void) {
    // Detached, so that Ctrl-C does not end it. If this process exits, the next write ends it.
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

/** Returns `undefined` for other text. The usage is `null` for a GPU without a value (`[N/A]`). */
export function parseGpuLine(line: string): GpuReading | undefined {
  const fields = /^\s*(\d{1,4})\s*,\s*(?:(-?\d+(?:\.\d+)?)\s*%?|\[[^\]]*\])\s*$/.exec(line)
  if (fields === null || Number(fields[1]) >= maxGpus) return undefined
  const gpu_id = Number(fields[1])
  return { gpu_id, gpu_percent: fields[2] === undefined ? null : clampPercent(Number(fields[2])) }
}
