/** The sampler of the machine that this process runs on: its node and its GPUs in one sample. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { GpuSampler } from './gpu-sampler.ts'
import { NodeSampler } from './node-sampler.ts'
import type { ResourceSampler } from './sampler.ts'

export interface LocalSamplerOptions {
  readonly clock: Clock
  readonly log: Log
  /** How often it will be asked for a sample. */
  readonly pollSeconds: number
}

/** A sampler of this machine. Probing for GPUs happens in its `prime`, 2 s at most. */
export function createLocalSampler(options: LocalSamplerOptions): ResourceSampler {
  const node = new NodeSampler(options)
  const gpus = new GpuSampler(options)
  return {
    async prime() {
      await gpus.prime()
      node.prime()
    },
    async sample() {
      return { node: node.sample(), gpus: await gpus.sample() }
    },
    async close() {
      node.close()
      await gpus.close()
    },
  }
}
