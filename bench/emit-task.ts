/** The five events of a successful task, as a session emits them. */

import { type EventClass, stampEvent } from '../src/events/event.ts'
import {
  TaskCompleted,
  TaskCreated,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../src/events/vocabulary.ts'
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
