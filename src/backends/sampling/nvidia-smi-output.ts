/** Reads what `nvidia-smi` prints for our query. Pure: it starts no process. */

import { clampPercent } from './reading.ts'
import type { GpuReading } from './sampler.ts'

/** The query whose lines `parseGpuLine` reads. */
export const gpuQuery: readonly string[] = [
  '--query-gpu=index,utilization.gpu',
  '--format=csv,noheader,nounits',
]

/** More than any machine has; a larger index is no index. */
const mostGpus = 1024

/**
 * A line such as `0, 37`. A GPU that does not tell (`[N/A]`) is `null`; no reading is
 * `undefined`.
 */
export function parseGpuLine(line: string): GpuReading | undefined {
  const fields = /^\s*(\d{1,4})\s*,\s*(?:(-?\d+(?:\.\d+)?)\s*%?|\[[^\]]*\])\s*$/.exec(line)
  if (fields === null || Number(fields[1]) >= mostGpus) return undefined
  const gpu_id = Number(fields[1])
  return { gpu_id, gpu_percent: fields[2] === undefined ? null : clampPercent(Number(fields[2])) }
}
