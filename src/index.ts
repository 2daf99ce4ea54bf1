/** The main entry point: sessions, tasks, backends, telemetry, events and errors. */

// Imported first, because dependencies fail on an older Node with confusing errors.
import './foundation/require-node.ts'
export { toEventNotice } from './backends/backend.ts'
export type {
  AnyTask,
  AttemptFacts,
  Backend,
  BackendListener,
  ConnectedSession,
  Connection,
  ContinuedAttempt,
  EarlierRun,
  EventNotice,
  Job,
  NodeCapacity,
  NodeNotice,
  Notice,
  Refusal,
  SampledNode,
  TaskReport,
} from './backends/backend.ts'
export type {
  GpuReading,
  NodeReadings,
  ResourceSample,
  ResourceSampler,
} from './backends/sampling/sampler.ts'
export { ConcurrentBackend } from './backends/local/concurrent-backend.ts'
export type { ConcurrentBackendOptions } from './backends/local/concurrent-backend.ts'
export { NoopBackend } from './backends/noop-backend.ts'
export type { NoopBackendOptions } from './backends/noop-backend.ts'
export { BaseEvent } from './events/event.ts'
export type { EventClass, EventSchema, FieldSpec, FieldType } from './events/event.ts'
export { defineEvent } from './events/define-event.ts'
export type { DeclaredFields, FieldDeclaration, FieldDeclarations } from './events/define-event.ts'
export type { Clock, TimerOptions } from './foundation/clock.ts'
export type { JsonObject, JsonValue } from './foundation/json-value.ts'
export {
  AttemptStarted,
  BackendThrottled,
  Batch,
  CheckpointDegraded,
  CheckpointRecovered,
  EngineLost,
  LoopBlocked,
  NodeDrained,
  NodeJoined,
  NodeLost,
  AllocationEnding,
  ResultReused,
  StaleResult,
  SubscriberError,
  TaskAttempt,
  TaskMoved,
  TaskProgress,
  TaskResolved,
  WorkerLost,
  WorkflowEnded,
  WorkflowStarted,
} from './events/library-events.ts'
export { makeEvent } from './events/make-event.ts'
export type { EventInput } from './events/make-event.ts'
export type {
  Distribution,
  HistogramInstrument,
  Labels,
  Measurement,
  MetricValues,
  PlainMetric,
} from './events/measurement.ts'
export type {
  EventSink,
  RowHolder,
  TaskChange,
  TaskEventType,
  TaskSink,
  WorkSink,
  WorkSpan,
} from './events/sink.ts'
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
export type {
  ApplicationEvent,
  BuiltInEvent,
  LibraryEvent,
  TaskEvent,
  TelemetryEvent,
} from './events/vocabulary.ts'
export type { Log } from './foundation/log.ts'
export type {
  CheckpointErrorDetails,
  ErrorDetails,
  InferenceErrorDetails,
  ValueErrorDetails,
} from './foundation/errors.ts'
export type { ExecutableFailedDetails, TaskErrorDetails } from './foundation/task-errors.ts'
export {
  BackendError,
  CheckpointError,
  InferenceError,
  PoisonTaskError,
  StateError,
  TimeoutError,
  TuttiError,
  ValueError,
  WorkerLostError,
} from './foundation/errors.ts'
export {
  ArgumentNotSerializableError,
  CwdNotFoundError,
  ExecutableFailedError,
  ExecutableNotFoundError,
  ExecutableNotPermittedError,
  OutputFileError,
  ResultNotSerializableError,
  SpawnError,
  TaskCanceledError,
  TaskFailedError,
  TaskImportError,
} from './foundation/task-errors.ts'
export { closeOnSignals } from './session/close-on-signals.ts'
export type { Closable, CloseOnSignalsOptions } from './session/close-on-signals.ts'
export { currentTask, RunningTask, runInTask } from './foundation/task-context.ts'
export type { CurrentTask, TaskHost, TaskUpdate } from './foundation/task-context.ts'
export { Session } from './session/session.ts'
export type { MapOptions } from './session/map.ts'
export type { CompletedTasks, WaitOptions } from './session/wait.ts'
export type { NameLimit, NameLimitOptions } from './core/limits/name-limits.ts'
export type { ResumedRecord, ResumeOptions } from './core/resume/resumption.ts'
export type {
  CloseOptions,
  SessionOptions,
  SessionTelemetryOptions,
} from './core/session-options.ts'
export { AITask } from './tasks/ai-task.ts'
export type { AIOptions, FinishReason, ResponseFormat, SamplingOptions } from './tasks/ai-task.ts'
export type { ComputeOptions, ComputeSpec } from './tasks/compute-options.ts'
export type { AnswerFacts, ProgramOutput } from './tasks/task-record.ts'
export { ComputeTask } from './tasks/compute-task.ts'
export type { ExecutableOptions, ExecutableResult, FunctionOptions } from './tasks/compute-task.ts'
export { defineTask } from './tasks/define-task.ts'
export type { AnyFunction, TaskDefinition } from './tasks/define-task.ts'
export type { Moment, TaskState } from './tasks/lifecycle.ts'
export type { ResourceRequest } from './tasks/resources.ts'
export type { RetryOptions, RetryPolicy } from './tasks/task-fields.ts'
export type { ClosureSpec, FunctionSpec, ProgramSpec, PromptSpec, TaskSpec } from './tasks/spec.ts'
export type { FinishedSpan, SpanAnnotation, SpanLink } from './checkpoint/format.ts'
export type { SpanEnricher } from './telemetry/spans/enrichers.ts'
export type { EventStream, EventStreamOptions } from './telemetry/event-stream.ts'
export { followProgress } from './telemetry/progress/follow-progress.ts'
export type {
  FollowedTelemetry,
  FollowProgressOptions,
  ProgressStream,
} from './telemetry/progress/follow-progress.ts'
export { TelemetryManager } from './telemetry/manager.ts'
export type {
  PrometheusEndpoint,
  PrometheusOptions,
} from './telemetry/metrics/prometheus-endpoint.ts'
export type { TelemetryOptions } from './telemetry/options.ts'
export type { NodeSummary, UtilizationSummary } from './views/panels/resources.ts'
export type { DurationStats } from './views/stats.ts'
export type { TelemetryCost } from './views/panels/run.ts'
export type { TelemetrySummary } from './views/summary.ts'
