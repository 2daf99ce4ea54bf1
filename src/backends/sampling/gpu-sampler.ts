/** Reads this machine's GPUs through the first source that works, and handles its failures. */

import { existsSync } from 'node:fs'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf, TimeoutError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { NvidiaSmi } from './nvidia-smi.ts'
import { Nvml } from './nvml.ts'
import { type GpuReading, type GpuSource, type ProbeResult, withDeadline } from './sampler.ts'

export interface GpuSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  /** The time between calls of `sample`. */
  readonly pollSeconds: number
  /** `/proc` by default. */
  readonly procRoot?: string
  /** The sources in order of preference. Default: NVML, then `nvidia-smi`. */
  readonly sources?: readonly GpuSource[]
}

/**
 * Never rejects, and waits at most 2 s for a source. Warns at most once, and never on a machine
 * that has neither GPUs nor the NVIDIA driver.
 */
export class GpuSampler {
  readonly #clock: Clock
  readonly #log: Log
  readonly #sources: readonly GpuSource[]
  readonly #driverFile: string
  #source: GpuSource | undefined
  #last: readonly GpuReading[] = []
  #isPending = false
  #isWarned = false

  constructor(options: GpuSamplerOptions) {
    const { clock, log, pollSeconds, procRoot = '/proc' } = options
    this.#clock = clock
    this.#log = log
    // NVML first: its calls take microseconds, whereas nvidia-smi is a process.
    this.#sources = options.sources ?? [new Nvml(), new NvidiaSmi({ clock, pollSeconds })]
    this.#driverFile = `${procRoot}/driver/nvidia/version`
  }

  /** The name of the source in use, or `none`. */
  get sourceName(): string {
    return this.#source?.name ?? 'none'
  }

  /** Chooses the first source that works. */
  async prime(): Promise<void> {
    const reasons: string[] = []
    let isFault = existsSync(this.#driverFile)
    for (const source of this.#sources) {
      const result = await this.#probe(source)
      if (result.state === 'ready') {
        this.#source = source
        return
      }
      isFault ||= result.state !== 'absent'
      reasons.push(`${source.name}: ${result.reason}`)
      await this.#close(source)
      if (result.state === 'hung') break
    }
    if (isFault) this.#warn(reasons.join('; '))
  }

  /** Reads the GPUs. If that fails, returns the last known GPUs with `null` as usage. */
  async sample(): Promise<readonly GpuReading[]> {
    const source = this.#source
    if (source === undefined) return []
    if (this.#isPending) return unread(this.#last)
    this.#isPending = true
    const reading = source.sample().finally(() => (this.#isPending = false))
    try {
      this.#last = await withDeadline(this.#clock, reading)
      return this.#last
    } catch (error) {
      this.#warn(`${source.name}: ${messageOf(error)}`)
      return unread(this.#last)
    }
  }

  async close(): Promise<void> {
    const source = this.#source
    this.#source = undefined
    if (source !== undefined) await this.#close(source)
  }

  /** After a source that hangs, no further one is probed, because all use the same driver. */
  async #probe(source: GpuSource): Promise<ProbeResult | { state: 'hung'; reason: string }> {
    try {
      return await withDeadline(this.#clock, source.probe())
    } catch (error) {
      const state = error instanceof TimeoutError ? 'hung' : 'broken'
      return { state, reason: messageOf(error) }
    }
  }

  async #close(source: GpuSource): Promise<void> {
    try {
      await withDeadline(this.#clock, source.close())
    } catch (error) {
      this.#warn(`${source.name}: ${messageOf(error)}`)
    }
  }

  #warn(reason: string): void {
    if (this.#isWarned) return
    this.#isWarned = true
    this.#log.warn('GpuUnreadable', `GPU utilization is unknown: ${reason}`)
  }
}

const unread = (gpus: readonly GpuReading[]): readonly GpuReading[] =>
  gpus.map(({ gpu_id }) => ({ gpu_id, gpu_percent: null }))
