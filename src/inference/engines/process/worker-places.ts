/**
 * The cores and GPUs that the workers of a configuration need on the nodes of an allocation. Pure.
 */

import { ValueError } from '../../../foundation/errors.ts'
import type { ServerRequest } from '../../../runtime/server/node-servers.ts'
import type { InferenceConfig } from '../../config/inference-config.ts'
import { workersPerNode } from './server-command.ts'

/** The request for all workers at once, including workers that start only under load. */
export function toServerRequest(
  service: string,
  { tpSize, hardware, dynamicWorkers }: InferenceConfig,
  coresPerWorker: number,
): ServerRequest {
  const { numNodes, numGpus, nodeOffset, numInfWorkers } = hardware
  const perNode = workersPerNode({ tpSize, numGpus })
  const workers = dynamicWorkers.isOn ? dynamicWorkers.maxWorkers : numInfWorkers
  if (workers > numNodes * perNode) {
    const field = dynamicWorkers.isOn ? 'dynamic_workers.max_workers' : 'hardware.num_inf_workers'
    const max = numNodes * perNode
    throw new ValueError(
      `${field}: there is room for ${max} of ${workers} workers: ${perNode} on each node`,
      {
        field,
        expected: `at most ${max}`,
        got: workers,
        hint: 'Raise hardware.num_nodes or hardware.num_gpus.',
      },
    )
  }
  const nodes = Array.from({ length: numNodes }, (_, at) => {
    const count = Math.max(0, Math.min(perNode, workers - at * perNode))
    return { cores: count * coresPerWorker, gpus: numGpus === 0 ? 0 : count * tpSize }
  })
  return { service, nodeOffset, nodes }
}
