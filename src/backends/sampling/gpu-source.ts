/** The port of one way to read GPUs. `GpuSampler` chooses among them. */

import type { GpuReading } from './sampler.ts'

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
