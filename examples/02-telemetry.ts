/** Everything that happens is an event: to a subscriber, to a file, to metrics and spans. */

import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ComputeTask, defineEvent, makeEvent, NoopBackend, Session } from 'tutti'

const Measured = defineEvent('demo.Measured', { celsius: 'float', sensor: ['str', 'unknown'] })
const folder = await mkdtemp(join(tmpdir(), 'tutti-example-'))
const session = new Session([new NoopBackend({ name: 'noop' })], { id: 's-example' })
const telemetry = await session.startTelemetry({ checkpointPath: folder })
telemetry.subscribe((event) => {
  // The load of this machine, now and then.
  if (event.event_type === 'ResourceUpdate') return
  console.log(event.event_type, event.backend === '' ? '(no backend yet)' : event.backend)
})

await session.submitTasks([new ComputeTask({ executable: './simulate' })])
telemetry.emit(makeEvent(Measured, { session_id: session.id, backend: 'lab', celsius: 21.5 }))
await session.close()

const { tasks } = telemetry.summary()
console.log(`${tasks.completed} of ${tasks.submitted} completed`)
await rm(folder, { recursive: true })

// Output:
// SessionStarted tutti
// TaskCreated (no backend yet)
// TaskSubmitted noop
// TaskQueued noop
// TaskCompleted noop
// demo.Measured lab
// SessionEnded tutti
// 1 of 1 completed
