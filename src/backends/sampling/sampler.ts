/** The ports for reading a node and its GPUs. They know nothing of events and intervals. */

import type { Clock } from '../../foundation/clock.ts'
import { boundedWait } from '../../foundation/promises.ts'

/** The usage of a node; `null` means unknown. Byte fields count since the previous sample. */
export interface NodeReadings {
  readonly cpu_percent: number | null
  readonly memory_percent: number | null
  readonly disk_read_bytes: number | null
  readonly disk_write_bytes: number | null
  readonly net_sent_bytes: number | null
  readonly net_recv_bytes: number | null
}

/** The usage of one GPU; `null` means unknown. */
export interface GpuReading {
  readonly gpu_id: number
  readonly gpu_percent: number | null
}

/** One reading of a node; `gpus` is ordered by `gpu_id` and empty without GPUs. */
export interface ResourceSample {
  /** Wall-clock seconds of the reading. Default: the time at which the sample arrives. */
  readonly at?: number
  readonly node: NodeReadings
  readonly gpus: readonly GpuReading[]
  /** The part of the node's `cpu_percent` that this run uses. Default: unknown. */
  readonly runCpuPercent?: number | null
}

/**
 * Reads one node. `prime` is called first and sets the baseline, so that the first sample has a
 * `cpu_percent`; byte counts are `null` in the first sample. Calls never overlap. An unreadable
 * source results in `null` values, never in a rejection.
 */
export interface ResourceSampler {
  /** Reads the counters for the first time. */
  prime(): Promise<void>
  /** Reads the usage since the previous call. */
  sample(): Promise<ResourceSample>
  /** Releases the resources that the sampler holds. */
  close(): Promise<void>
}

/** Whether a source can be read: `absent` if the machine does not have it, `broken` if it fails. */
export type ProbeResult =
  | { readonly state: 'ready' }
  | { readonly state: 'absent' | 'broken'; readonly reason: string }

/**
 * One way to read the GPUs of this machine. `sample` is called only after a `ready` probe; its
 * result is ordered by `gpu_id`, and it rejects if nothing could be read. Calls never overlap,
 * except that `close` also ends a probe that hangs.
 */
export interface GpuSource {
  readonly name: string
  probe(): Promise<ProbeResult>
  sample(): Promise<readonly GpuReading[]>
  close(): Promise<void>
}

/** The readings of a node that could not be read at all. */
export const unknownReadings: NodeReadings = Object.freeze({
  cpu_percent: null,
  memory_percent: null,
  disk_read_bytes: null,
  disk_write_bytes: null,
  net_sent_bytes: null,
  net_recv_bytes: null,
})

/** How long to wait for a reading; after that, the sample is completed without it. */
export const maxWaitMs = 2000

/** Settles like the promise, or rejects with `TimeoutError` after `maxWaitMs`. */
export const withDeadline = <T>(clock: Clock, promise: Promise<T>): Promise<T> =>
  boundedWait(clock, maxWaitMs, promise)
