/** A thousand workflows at a time, each in a scope of its own; one that fails harms no other. */

import { ConcurrentBackend } from 'tutti'
import { DependencyFailedError, WorkflowEngine } from 'tutti/workflow'
import { square } from './tasks/square.ts'

const local = await ConcurrentBackend.create({ name: 'local', workers: 2 })
await using flow = await WorkflowEngine.create({ backend: local })
const telemetry = await flow.startTelemetry()
const workflows = new Set<string>()
telemetry.subscribe(({ attributes }) => {
  if (typeof attributes['workflow_id'] === 'string') workflows.add(attributes['workflow_id'])
})

const squareOf = flow.functionTask(square)
const check = flow.functionTask((n: number) => {
  if (n === 49) throw new RangeError('49 is not wanted')
  return n
})
const add = flow.functionTask((a: number, b: number) => a + b)

const ends = await Promise.allSettled(
  Array.from({ length: 1000 }, (_, n) =>
    flow.scope(`workflow-${n}`, async () => {
      const checked = check(squareOf(n))
      return await add(squareOf(checked), checked)
    }),
  ),
)
const values = ends.flatMap((end) => (end.status === 'fulfilled' ? [end.value] : []))
const errors = ends.flatMap((end) => (end.status === 'rejected' ? [end.reason as unknown] : []))
console.log(`${values.length} values, the third is ${values[2]}`)
for (const error of errors) {
  if (error instanceof DependencyFailedError) {
    console.log(
      `${errors.length} failed after ${error.path.length} tasks: ${String(error.rootCause)}`,
    )
  }
}
await telemetry.flush()
const { completed, failed } = telemetry.summary().tasks
console.log(`${workflows.size} workflows, ${completed} tasks completed, ${failed} failed`)

// Output:
// 999 values, the third is 20
// 1 failed after 2 tasks: RangeError: 49 is not wanted
// 1000 workflows, 3997 tasks completed, 3 failed
