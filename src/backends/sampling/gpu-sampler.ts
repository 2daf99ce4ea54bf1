/** Reads this machine's GPUs, and handles the failures of the program that reads them. */

import { existsSync } from 'node:fs'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { NvidiaSmi } from './nvidia-smi.ts'
import { type GpuReading, type GpuSource, type ProbeResult, withReadTimeout } from './sampler.ts'

export interface GpuSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  readonly pollSeconds: number
  readonly procRoot?: string
  /** Default: `nvidia-smi`. */
  readonly source?: GpuSource
}

/** Never rejects, and waits at most 2 s. Warns once, and only if there is a driver. */
export class GpuSampler {
  readonly #clock: Clock
  readonly #log: Log
  readonly #driverFile: string
  #source: GpuSource | undefined
  #lastReadings: readonly GpuReading[] = []
  #isPending = false
  #isWarned = false

  constructor({ clock, log, pollSeconds, procRoot = '/proc', source }: GpuSamplerOptions) {
    this.#clock = clock
    this.#log = log
    this.#source = source ?? new NvidiaSmi({ clock, pollSeconds })
    this.#driverFile = `${procRoot}/driver/nvidia/version`
  }

  async prime(): Promise<void> {
    const source = this.#source
    if (source === undefined) return
    const result = await this.#probe(source)
    if (result.state === 'ready') return
    await this.close()
    if (result.state !== 'absent' || existsSync(this.#driverFile)) this.#warn(source, result.reason)
  }

  /** Reads the GPUs. If that fails, returns the last known GPUs with a usage of `null`. */
  async sample(): Promise<readonly GpuReading[]> {
    const source = this.#source
    if (source === undefined) return []
    if (this.#isPending) return withoutUsage(this.#lastReadings)
    this.#isPending = true
    const reading = source.sample().finally(() => (this.#isPending = false))
    try {
      this.#lastReadings = await withReadTimeout(this.#clock, reading)
      return this.#lastReadings
    } catch (error) {
      this.#warn(source, messageOf(error))
      return withoutUsage(this.#lastReadings)
    }
  }

  async close(): Promise<void> {
    const source = this.#source
    this.#source = undefined
    if (source === undefined) return
    try {
      await withReadTimeout(this.#clock, source.close())
    } catch (error) {
      this.#warn(source, messageOf(error))
    }
  }

  async #probe(source: GpuSource): Promise<ProbeResult> {
    try {
      return await withReadTimeout(this.#clock, source.probe())
    } catch (error) {
      return { state: 'broken', reason: messageOf(error) }
    }
  }

  #warn({ name }: GpuSource, reason: string): void {
    if (this.#isWarned) return
    this.#isWarned = true
    this.#log.warn('GpuUnreadable', `GPU utilization is unknown: ${name}: ${reason}`)
  }
}

const withoutUsage = (gpus: readonly GpuReading[]): readonly GpuReading[] =>
  gpus.map(({ gpu_id }) => ({ gpu_id, gpu_percent: null }))
