/** The five events of a successful task, as an application and as a session emit them. */

import { type EventClass, stampEvent } from '../src/events/event.ts'
import {
  TaskCompleted,
  TaskCreated,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../src/events/vocabulary.ts'
import { type RowHolder, sharedAttributes, type TaskEventType } from '../src/events/sink.ts'
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

const hash = '0123456789abcdef.0123456789abcdef.0123456789abcdef.0123456789abcdef'
const task = Object.freeze({ executable: 'noop', task_type: 'function' })
const attempts = ['w1', 'w2'].map((worker_id) => Object.freeze({ ...task, worker_id, attempt: 1 }))
for (const attributes of [task, ...attempts]) sharedAttributes.add(attributes)

/** Emits the same events as the lifecycle emitter of a session does. */
export function recordTask(telemetry: TelemetryManager, number: number): void {
  const uid = `task-${String(number).padStart(6, '0')}`
  const attempt = attempts[number % 2] ?? task
  const holder = { telemetryRow: null }
  record(telemetry, 'TaskCreated', uid, holder, task)
  record(telemetry, 'TaskSubmitted', uid, holder, task)
  record(telemetry, 'TaskQueued', uid, holder, task)
  record(telemetry, 'TaskStarted', uid, holder, attempt)
  record(telemetry, 'TaskCompleted', uid, holder, attempt)
}

function record(
  telemetry: TelemetryManager,
  event_type: TaskEventType,
  task_id: string,
  holder: RowHolder,
  attributes: typeof task,
): void {
  const event_time = systemClock.now()
  telemetry.recordTask({
    event_type,
    event_time,
    emit_time: systemClock.now(),
    backend: event_type === 'TaskCreated' ? '' : 'local',
    task_id,
    node_id: event_type === 'TaskCreated' ? null : 'host',
    attributes,
    own: event_type === 'TaskCreated' ? { definition_hash: hash } : null,
    duration_seconds: 0.001,
    error_type: '',
    holder,
  })
}
