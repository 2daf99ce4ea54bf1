/** The port through which a node and its GPUs are read. It knows no events and no intervals. */

import type { Clock } from '../../foundation/clock.ts'
import { boundedWait } from '../../foundation/promises.ts'

/** What a node did; `null` is unknown. Byte fields count since the previous sample. */
export interface NodeReadings {
  readonly cpu_percent: number | null
  readonly memory_percent: number | null
  readonly disk_read_bytes: number | null
  readonly disk_write_bytes: number | null
  readonly net_sent_bytes: number | null
  readonly net_recv_bytes: number | null
}

/** What one GPU did; `null` is unknown. */
export interface GpuReading {
  readonly gpu_id: number
  readonly gpu_percent: number | null
}

/** One reading of a node; `gpus` is ordered by `gpu_id` and empty without GPUs. */
export interface ResourceSample {
  /** Wall-clock seconds at which it was read. Default: the time at which it arrives. */
  readonly at?: number
  readonly node: NodeReadings
  readonly gpus: readonly GpuReading[]
}

/**
 * Reads one node. `prime` comes first and sets the baseline, so that the first sample has a
 * `cpu_percent`; byte counts are `null` in the first sample. Calls never overlap. An unreadable
 * source is `null` in the sample, never a rejection.
 */
export interface ResourceSampler {
  /** Reads the counters for the first time. */
  prime(): Promise<void>
  /** What was used since the call before. */
  sample(): Promise<ResourceSample>
  /** Ends what it started. */
  close(): Promise<void>
}

/** Of a node that could not be read at all. */
export const unknownReadings: NodeReadings = Object.freeze({
  cpu_percent: null,
  memory_percent: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_sent_bytes: null,
  net_recv_bytes: null,
})

/** How long a reading is waited for; the rest of the sample goes on without it. */
export const longestWaitMs = 2000

/** Settles like the promise, or rejects with `TimeoutError` after the longest wait. */
export const withDeadline = <T>(clock: Clock, promise: Promise<T>): Promise<T> =>
  boundedWait(clock, longestWaitMs, promise)
