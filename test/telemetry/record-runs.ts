/** Telemetry whose record is written by a thread from its first line, with a small ring. */

import { TelemetryManager } from '../../src/telemetry/manager.ts'
import type { RecordParts, TelemetryOptions } from '../../src/telemetry/options.ts'
import { sharedAttributes, type TaskChange, type TaskEventType } from '../../src/events/sink.ts'
import { systemClock } from '../../src/foundation/clock.ts'

export const threadParts: RecordParts = {
  maxValueBytes: null,
  resumedFrom: null,
  lock: null,
  runFacts: {},
  writer: { linesBeforeThread: 0, ringBytes: 65_536 },
}

export const openThreaded = (
  options: TelemetryOptions,
  writer: RecordParts['writer'] = threadParts.writer ?? {},
): TelemetryManager => new TelemetryManager(options, { ...threadParts, writer })

const task = Object.freeze({ executable: 'noop', task_type: 'function' })
sharedAttributes.add(task)
const life: readonly TaskEventType[] = [
  'TaskCreated',
  'TaskSubmitted',
  'TaskQueued',
  'TaskStarted',
  'TaskCompleted',
]

export const changeOf = (type: TaskEventType, uid: string): TaskChange => ({
  event_type: type,
  event_time: systemClock.now(),
  emit_time: systemClock.now(),
  backend: type === 'TaskCreated' ? '' : 'local',
  task_id: uid,
  node_id: null,
  attributes: task,
  duration_seconds: 0.25,
  error_type: 'Error',
  own: null,
  holder: null,
})

/** The five events of one task. */
export function recordLife(telemetry: TelemetryManager, uid: string): void {
  for (const type of life) telemetry.recordTask(changeOf(type, uid))
}
