/** The five events of a successful task, as an application and as a session emit them. */

import { type EventClass, stampEvent } from '../src/events/event.ts'
import {
  TaskCompleted,
  TaskCreated,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../src/events/vocabulary.ts'
import { sharedAttributes, type TaskEventType } from '../src/events/sink.ts'
import { systemClock } from '../src/foundation/clock.ts'
import type { TelemetryManager } from '../src/telemetry/manager.ts'

export const lifecycle = [TaskCreated, TaskSubmitted, TaskQueued, TaskStarted, TaskCompleted]

export function emitTask(telemetry: TelemetryManager, uid: string): void {
  const attributes = Object.freeze({ executable: 'noop', task_type: 'function' })
  for (const eventClass of lifecycle) {
    telemetry.emit(
      stampEvent(eventClass as EventClass<string, { duration_seconds: number }>, systemClock, {
        session_id: 's-bench',
        backend: eventClass === TaskCreated ? '' : 'local',
        task_id: uid,
        attributes,
        duration_seconds: 0.001,
      }),
    )
  }
}

const task = Object.freeze({ executable: 'noop', task_type: 'function' })
const attempts = ['w1', 'w2'].map((worker_id) => Object.freeze({ ...task, worker_id, attempt: 1 }))
for (const attributes of [task, ...attempts]) sharedAttributes.add(attributes)

/** The same, as the lifecycle emitter of a session passes them on. */
export function recordTask(telemetry: TelemetryManager, number: number): void {
  const uid = `task-${String(number).padStart(6, '0')}`
  const attempt = attempts[number % 2] ?? task
  record(telemetry, 'TaskCreated', uid, '', task)
  record(telemetry, 'TaskSubmitted', uid, 'local', task)
  record(telemetry, 'TaskQueued', uid, 'local', task)
  record(telemetry, 'TaskStarted', uid, 'local', attempt)
  record(telemetry, 'TaskCompleted', uid, 'local', attempt)
}

function record(
  telemetry: TelemetryManager,
  event_type: TaskEventType,
  task_id: string,
  backend: string,
  attributes: typeof task,
): void {
  const event_time = systemClock.now()
  telemetry.recordTask({
    event_type,
    event_time,
    emit_time: systemClock.now(),
    backend,
    task_id,
    node_id: backend === '' ? null : 'host',
    attributes,
    duration_seconds: 0.001,
    error_type: '',
  })
}
