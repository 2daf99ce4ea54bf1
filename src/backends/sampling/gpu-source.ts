/** The port of one way to read GPUs. Which way is taken is not decided here. */

import type { GpuReading } from './sampler.ts'

/** Whether a source can be read; `absent` is a machine without it, `broken` one where it fails. */
export type ProbeResult =
  | { readonly state: 'ready' }
  | { readonly state: 'absent' | 'broken'; readonly reason: string }

/**
 * One way to read the GPUs of this machine. `sample` follows a `ready` probe, is ordered by
 * `gpu_id`, and rejects when nothing could be read; calls never overlap. `close` also ends a
 * probe that hangs.
 */
export interface GpuSource {
  readonly name: string
  probe(): Promise<ProbeResult>
  sample(): Promise<readonly GpuReading[]>
  close(): Promise<void>
}
