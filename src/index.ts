/** The main door: sessions, tasks, telemetry, events and errors. */

export { BaseEvent } from './events/event.ts'
export type { BaseFields, EventClass, FieldType } from './events/event.ts'
export { defineEvent } from './events/define-event.ts'
export type { DeclaredFields, FieldDeclaration, FieldDeclarations } from './events/define-event.ts'
export type { JsonObject, JsonValue } from './events/json-value.ts'
export { makeEvent } from './events/make-event.ts'
export type { EventInput } from './events/make-event.ts'
export { ResourceUpdate } from './events/resource-update.ts'
export type { ResourceReadings } from './events/resource-update.ts'
export {
  SessionEnded,
  SessionStarted,
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from './events/vocabulary.ts'
export type { BuiltInEvent, TaskEvent } from './events/vocabulary.ts'
export {
  BackendError,
  CheckpointError,
  InferenceError,
  StateError,
  TimeoutError,
  TuttiError,
  ValueError,
  WorkerLostError,
} from './foundation/errors.ts'
export type { FinishedSpan, SpanAnnotation } from './checkpoint/format.ts'
export type { SpanEnricher } from './telemetry/enrichers.ts'
export type { EventStream, EventStreamOptions } from './telemetry/event-stream.ts'
export { TelemetryManager } from './telemetry/manager.ts'
export type { TelemetryEvent } from './telemetry/manager.ts'
export type { TelemetryOptions } from './telemetry/options.ts'
export type { TelemetrySummary } from './telemetry/summary.ts'
