/**
 * The library's own events. Their names have a namespace, because the list of events in the
 * specification is closed. A new event needs a definition here and a row in `docs/events.md`.
 */

import { defineEvent } from './define-event.ts'
import type { EventClass } from './event.ts'

/** Narrows the types of fields that are declared as `any`, for example to `string | null`. */
const withFieldTypes =
  <Precise extends object>() =>
  <Name extends string, Fields extends object>(
    eventClass: EventClass<Name, Fields>,
  ): EventClass<Name, Omit<Fields, keyof Precise> & Precise> =>
    eventClass as unknown as EventClass<Name, Omit<Fields, keyof Precise> & Precise>

/**
 * A subscriber failed. Emitted at most once per minute; `count` is the number of failures since the
 * last event.
 */
export const SubscriberError = defineEvent('tutti.SubscriberError', {
  subscriber: 'str',
  count: 'int',
  message: 'str',
})
export type SubscriberError = InstanceType<typeof SubscriberError>

/** The checkpoint cannot be written at present. The run continues; lines wait in memory. */
export const CheckpointDegraded = defineEvent('tutti.CheckpointDegraded', {
  errno: 'str',
  lines_pending: 'int',
})
export type CheckpointDegraded = InstanceType<typeof CheckpointDegraded>

/** The checkpoint can be written again. `lost` lines were dropped in the meantime. */
export const CheckpointRecovered = defineEvent('tutti.CheckpointRecovered', { lost: 'int' })
export type CheckpointRecovered = InstanceType<typeof CheckpointRecovered>

/** An attempt failed, and a retry follows at `retry_at` or later. */
export const TaskAttempt = withFieldTypes<{
  worker_id: string | null
  start_time: number | null
}>()(
  defineEvent('tutti.TaskAttempt', {
    attempt: 'int',
    /** `worker_id` and `start_time` are `null` if the attempt failed before it began. */
    worker_id: 'any',
    start_time: 'any',
    duration_seconds: 'float',
    error_type: 'str',
    error_message: 'str',
    /** When the retry begins at the earliest, in wall-clock seconds. */
    retry_at: 'float',
  }),
)
export type TaskAttempt = InstanceType<typeof TaskAttempt>

/** A retry has started. TaskStarted is emitted only once per task. */
export const AttemptStarted = defineEvent('tutti.AttemptStarted', {
  attempt: 'int',
  worker_id: 'str',
})
export type AttemptStarted = InstanceType<typeof AttemptStarted>

/** The progress of a task, from 0 to 1, as reported by the code of the task. */
export const TaskProgress = withFieldTypes<{ text: string | null }>()(
  defineEvent('tutti.TaskProgress', { fraction: 'float', text: 'any' }),
)
export type TaskProgress = InstanceType<typeof TaskProgress>

/** A worker was lost while it ran `tasks`, which may be empty. */
export const WorkerLost = withFieldTypes<{ tasks: readonly string[] }>()(
  defineEvent('tutti.WorkerLost', {
    worker_id: 'str',
    reason: 'str',
    tasks: 'any',
  }),
)
export type WorkerLost = InstanceType<typeof WorkerLost>

/**
 * A backend runs fewer tasks at a time than configured, because the system refuses more or its
 * workers do not start.
 */
export const BackendThrottled = defineEvent('tutti.BackendThrottled', {
  reason: 'str',
  limit: 'int',
})
export type BackendThrottled = InstanceType<typeof BackendThrottled>

/** An inference engine was lost and is being restarted. */
export const EngineLost = defineEvent('tutti.EngineLost', { worker_id: 'str', reason: 'str' })
export type EngineLost = InstanceType<typeof EngineLost>

/** An inference engine has finished a batch of requests. */
export const Batch = withFieldTypes<{ error_message: string | null }>()(
  defineEvent('tutti.Batch', {
    worker_id: 'str',
    size: 'int',
    /** How long the oldest request of the batch had waited. */
    wait_seconds: 'float',
    duration_seconds: 'float',
    error_message: 'any',
  }),
)
export type Batch = InstanceType<typeof Batch>

/** All dependencies of a workflow's task have ended. The task waited `wait_seconds` for them. */
export const TaskResolved = defineEvent('tutti.TaskResolved', {
  dependencies: 'int',
  wait_seconds: 'float',
})
export type TaskResolved = InstanceType<typeof TaskResolved>

/**
 * A task was not run, because its result is known. `source` is `stored` (under `key` in the cache),
 * `shared` (with an equal call) or `record` (the task `key` of the resumed record).
 */
export const ResultReused = defineEvent('tutti.ResultReused', { key: 'str', source: 'str' })
export type ResultReused = InstanceType<typeof ResultReused>

/** A closure blocked the event loop for longer than its `timeoutSeconds`. Its result is kept. */
export const LoopBlocked = defineEvent('tutti.LoopBlocked', {
  executable: 'str',
  seconds: 'float',
  timeout_seconds: 'float',
  hint: 'str',
})
export type LoopBlocked = InstanceType<typeof LoopBlocked>

/** A workflow's scope was entered. */
export const WorkflowStarted = withFieldTypes<{ parent_workflow_id: string | null }>()(
  defineEvent('tutti.WorkflowStarted', {
    workflow_id: 'str',
    parent_workflow_id: 'any',
  }),
)
export type WorkflowStarted = InstanceType<typeof WorkflowStarted>

/** A workflow's scope was left, and its tasks have ended. */
export const WorkflowEnded = withFieldTypes<{ error_message: string | null }>()(
  defineEvent('tutti.WorkflowEnded', {
    workflow_id: 'str',
    duration_seconds: 'float',
    error_message: 'any',
  }),
)
export type WorkflowEnded = InstanceType<typeof WorkflowEnded>

/** A node of a backend is available. Emitted when telemetry starts, and when a node joins. */
export const NodeJoined = withFieldTypes<{ labels: Readonly<Record<string, string>> }>()(
  defineEvent('tutti.NodeJoined', {
    cores: 'int',
    gpus: 'int',
    memory_mb: 'int',
    labels: 'any',
    /** The version of the library on the node. */
    version: 'str',
  }),
)
export type NodeJoined = InstanceType<typeof NodeJoined>

/** A node has finished its tasks and left. */
export const NodeDrained = defineEvent('tutti.NodeDrained', {})
export type NodeDrained = InstanceType<typeof NodeDrained>

/** A node was lost while it ran `tasks`. */
export const NodeLost = withFieldTypes<{ tasks: readonly string[] }>()(
  defineEvent('tutti.NodeLost', { reason: 'str', tasks: 'any' }),
)
export type NodeLost = InstanceType<typeof NodeLost>

/**
 * The time limit of an allocation is near. In the last `graceSeconds` of the allocation, no task
 * starts.
 */
export const AllocationEnding = defineEvent('tutti.AllocationEnding', { seconds_left: 'float' })
export type AllocationEnding = InstanceType<typeof AllocationEnding>

/**
 * Tasks that had been sent to a lost node, but were not reported as started, run on another node.
 * `count` of them may have started on the lost node without a report.
 */
export const TaskMoved = withFieldTypes<{ tasks: readonly string[] }>()(
  defineEvent('tutti.TaskMoved', { count: 'int', tasks: 'any' }),
)
export type TaskMoved = InstanceType<typeof TaskMoved>

/** The result of an attempt was dropped, because the task had already moved or ended. */
export const StaleResult = defineEvent('tutti.StaleResult', { attempt: 'int' })
export type StaleResult = InstanceType<typeof StaleResult>
