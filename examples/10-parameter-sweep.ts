/** A parameter sweep with a reduction: handles are arguments, with no await in between. */

import { ConcurrentBackend } from 'tutti'
import { WorkflowEngine } from 'tutti/workflow'
import { period } from './tasks/pendulum.ts'

const local = await ConcurrentBackend.create({ name: 'local', workers: 2 })
await using flow = await WorkflowEngine.create({ backend: local })

const simulate = flow.functionTask(period, { retries: 1, timeoutSeconds: 60 })
const reduce = flow.functionTask((angles: number[], periods: number[]) => {
  return angles.map((angle, at) => `${angle}° ${periods[at]?.toFixed(2)} s`)
})
const store = flow.executableTask((lines: string[]) => ({
  executable: 'sort',
  arguments: ['-n'],
  stdin: lines.join('\n'),
}))

const angles = [150, 10, 60, 100]
const sorted = store(
  reduce(
    angles,
    angles.map((angle) => simulate(angle)),
  ),
)
console.log((await sorted).stdout.trim())

// Output:
// 10° 2.01 s
// 60° 2.15 s
// 100° 2.47 s
// 150° 3.54 s
