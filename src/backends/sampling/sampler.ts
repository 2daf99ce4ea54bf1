/**
 * The interfaces for reading a node and its GPUs, and the conversion of counters to readings. A
 * percentage is never NaN, negative or above 100.
 */

import type { Clock } from '../../foundation/clock.ts'
import { boundedWait } from '../../foundation/promises.ts'

/** `null` means unknown. Byte counts cover the time since the previous sample. */
export interface NodeReadings {
  readonly cpu_percent: number | null
  readonly memory_percent: number | null
  readonly disk_read_bytes: number | null
  readonly disk_write_bytes: number | null
  readonly net_sent_bytes: number | null
  readonly net_recv_bytes: number | null
}

/** The usage of one GPU. `null` means unknown. */
export interface GpuReading {
  readonly gpu_id: number
  readonly gpu_percent: number | null
}

/** One reading of a node. `gpus` is ordered by `gpu_id`. */
export interface ResourceSample {
  /** Wall-clock seconds of the reading. Default: the time at which the sample arrives. */
  readonly at?: number
  readonly node: NodeReadings
  readonly gpus: readonly GpuReading[]
  /** The part of the node's CPU that this run uses, in percent. Default: unknown. */
  readonly runCpuPercent?: number | null
}

/**
 * Reads one node. `prime` sets the baseline, so that the first sample has a `cpu_percent`. Calls
 * never overlap. A value that cannot be read is `null`, and the call does not reject.
 */
export interface ResourceSampler {
  /** Reads the counters for the first time. */
  prime(): Promise<void>
  /** Reads the usage since the previous call. */
  sample(): Promise<ResourceSample>
  /** Releases the resources that the sampler holds. */
  close(): Promise<void>
}

/** The readings of a node that could not be read. */
export const unknownReadings: NodeReadings = Object.freeze({
  cpu_percent: null,
  memory_percent: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_sent_bytes: null,
  net_recv_bytes: null,
})

/** How long to wait for a reading. After this time, the sample is completed without it. */
export const readTimeoutMs = 2000

/** Settles like the promise, or rejects with `TimeoutError` after `readTimeoutMs`. */
export const withReadTimeout = <T>(clock: Clock, promise: Promise<T>): Promise<T> =>
  boundedWait(clock, readTimeoutMs, promise)

/** Returns `part` as a percentage of `whole`, from 0 to 100; `null` if `whole` is not positive. */
export function percentOf(part: number, whole: number): number | null {
  return whole > 0 ? clampPercent((part / whole) * 100) : null
}

/** Limits a number to the range from 0 to 100. Returns `null` for NaN. */
export function clampPercent(value: number): number | null {
  return Number.isNaN(value) ? null : Math.min(100, Math.max(0, value))
}

/** The increase of a counter; `null` for the first or an unknown value, and after a decrease. */
export class DeltaCounter {
  #previous: number | undefined

  advance(value: number | null): number | null {
    if (value === null || !Number.isFinite(value)) return null
    const previous = this.#previous
    this.#previous = value
    return previous === undefined || value < previous ? null : value - previous
  }
}

/** Two counters in the same unit: the amount used and the total amount. */
export interface Usage {
  readonly busy: number
  readonly total: number
}

/**
 * The percentage of `busy` in `total` since the last usage. `null` for the first usage, for an
 * unknown usage, and after a reset. If `total` has not changed, the last percentage is returned.
 */
export class UtilizationMeter {
  #previous: Usage | undefined
  #share: number | null = null

  advance(usage: Usage | null): number | null {
    if (usage === null || !Number.isFinite(usage.busy) || !Number.isFinite(usage.total)) return null
    const previous = this.#previous
    if (previous !== undefined && usage.total === previous.total) {
      return this.#share ?? percentOf(usage.busy, usage.total)
    }
    this.#previous = usage
    if (previous === undefined || usage.busy < previous.busy) return null
    this.#share = percentOf(usage.busy - previous.busy, usage.total - previous.total)
    return this.#share
  }
}
