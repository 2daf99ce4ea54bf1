/**
 * One workflow for threads, a cluster and a supercomputer; only the backend is another one.
 *
 *     node 13-anywhere.ts
 *     node 13-anywhere.ts cluster
 *     npx tutti launch --nodes 2 --time 10 13-anywhere.ts hpc
 */

import { type Backend, ConcurrentBackend } from 'tutti'
import { ClusterBackend } from 'tutti/cluster'
import { HpcBackend, setStartMethod } from 'tutti/hpc'
import { WorkflowEngine } from 'tutti/workflow'
import { period, tabulate } from './tasks/pendulum.ts'

const [where = 'local'] = process.argv.slice(2)
if (where === 'hpc') setStartMethod('slurm')
const create: Record<string, () => Promise<Backend>> = {
  local: () => ConcurrentBackend.create({ workers: 2 }),
  cluster: () => ClusterBackend.local({ agents: 2 }),
  hpc: () => HpcBackend.create(),
}
const backend = await create[where]?.()
if (backend === undefined) throw new Error(`where is "${where}"? Try local, cluster or hpc.`)
await using flow = await WorkflowEngine.create({ backend })

const simulate = flow.functionTask(period, { retries: 1 })
const table = flow.functionTask(tabulate)
const sort = flow.executableTask((lines: string[]) => ({
  executable: 'sort',
  arguments: ['-n'],
  stdin: lines.join('\n'),
}))

const angles = [150, 10, 60, 100]
const periods = angles.map((angle) => simulate(angle))
console.log((await sort(table(angles, periods))).stdout.trim())

// Output:
// 10° 2.01 s
// 60° 2.15 s
// 100° 2.47 s
// 150° 3.54 s
