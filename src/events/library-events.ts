/**
 * The library's own namespaced events, in addition to the specification's closed list. A new one
 * needs a definition here and a row in `docs/events.md`.
 */

import { defineEvent } from './define-event.ts'
import type { EventClass } from './event.ts'

/** Narrows the type of fields declared as `any` to what the library puts there. */
const typed =
  <Precise extends object>() =>
  <Name extends string, Fields extends object>(
    eventClass: EventClass<Name, Fields>,
  ): EventClass<Name, Omit<Fields, keyof Precise> & Precise> =>
    eventClass as unknown as EventClass<Name, Omit<Fields, keyof Precise> & Precise>

/** A subscriber failed; at most one event a minute for each, with the failures since the last. */
export const SubscriberError = defineEvent('tutti.SubscriberError', {
  subscriber: 'str',
  count: 'int',
  message: 'str',
})
export type SubscriberError = InstanceType<typeof SubscriberError>

/** The checkpoint cannot be written at the moment; the run continues and lines wait in memory. */
export const CheckpointDegraded = defineEvent('tutti.CheckpointDegraded', {
  errno: 'str',
  lines_pending: 'int',
})
export type CheckpointDegraded = InstanceType<typeof CheckpointDegraded>

/** The checkpoint is written again; `lost` lines were dropped meanwhile. */
export const CheckpointRecovered = defineEvent('tutti.CheckpointRecovered', { lost: 'int' })
export type CheckpointRecovered = InstanceType<typeof CheckpointRecovered>

/** An attempt failed, and a retry follows, not before `retry_at`. Worker and times are its own. */
export const TaskAttempt = typed<{ worker_id: string | null; start_time: number | null }>()(
  defineEvent('tutti.TaskAttempt', {
    attempt: 'int',
    /** `null` if the attempt failed before it began, like `start_time`; the duration is then 0. */
    worker_id: 'any',
    start_time: 'any',
    duration_seconds: 'float',
    error_type: 'str',
    error_message: 'str',
    /** Wall-clock seconds. */
    retry_at: 'float',
  }),
)
export type TaskAttempt = InstanceType<typeof TaskAttempt>

/** A retry has started; TaskStarted is emitted only for the first attempt. */
export const AttemptStarted = defineEvent('tutti.AttemptStarted', {
  attempt: 'int',
  worker_id: 'str',
})
export type AttemptStarted = InstanceType<typeof AttemptStarted>

/** The progress of a task, from 0 to 1, as reported by its own code. */
export const TaskProgress = typed<{ text: string | null }>()(
  defineEvent('tutti.TaskProgress', { fraction: 'float', text: 'any' }),
)
export type TaskProgress = InstanceType<typeof TaskProgress>

/** A worker or node was lost; `tasks` were running there. */
export const WorkerLost = typed<{ tasks: readonly string[] }>()(
  defineEvent('tutti.WorkerLost', {
    worker_id: 'str',
    reason: 'str',
    tasks: 'any',
  }),
)
export type WorkerLost = InstanceType<typeof WorkerLost>

/** A backend runs fewer tasks at a time than configured, because the system refuses more. */
export const BackendThrottled = defineEvent('tutti.BackendThrottled', {
  reason: 'str',
  limit: 'int',
})
export type BackendThrottled = InstanceType<typeof BackendThrottled>

/** An inference engine was lost; it is restarted. */
export const EngineLost = defineEvent('tutti.EngineLost', { worker_id: 'str', reason: 'str' })
export type EngineLost = InstanceType<typeof EngineLost>

/** An inference engine has ended a batch of requests. */
export const Batch = typed<{ error_message: string | null }>()(
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

/** The last dependency of a workflow's task has ended; it had waited for `wait_seconds`. */
export const TaskResolved = defineEvent('tutti.TaskResolved', {
  dependencies: 'int',
  wait_seconds: 'float',
})
export type TaskResolved = InstanceType<typeof TaskResolved>

/** A task was not run: a result with the same `key` is `stored`, or `shared` by an equal call. */
export const ResultReused = defineEvent('tutti.ResultReused', { key: 'str', source: 'str' })
export type ResultReused = InstanceType<typeof ResultReused>

/** A closure held the event loop longer than its `timeoutSeconds`; its own result counts. */
export const LoopBlocked = defineEvent('tutti.LoopBlocked', {
  executable: 'str',
  seconds: 'float',
  timeout_seconds: 'float',
  hint: 'str',
})
export type LoopBlocked = InstanceType<typeof LoopBlocked>

/** A workflow's scope was entered. */
export const WorkflowStarted = typed<{ parent_workflow_id: string | null }>()(
  defineEvent('tutti.WorkflowStarted', {
    workflow_id: 'str',
    parent_workflow_id: 'any',
  }),
)
export type WorkflowStarted = InstanceType<typeof WorkflowStarted>

/** A workflow's scope was left, and its tasks have ended. */
export const WorkflowEnded = typed<{ error_message: string | null }>()(
  defineEvent('tutti.WorkflowEnded', {
    workflow_id: 'str',
    duration_seconds: 'float',
    error_message: 'any',
  }),
)
export type WorkflowEnded = InstanceType<typeof WorkflowEnded>

/** A node of a backend is available: when telemetry starts, and when one joins later. */
export const NodeJoined = typed<{ labels: Readonly<Record<string, string>> }>()(
  defineEvent('tutti.NodeJoined', {
    cores: 'int',
    gpus: 'int',
    memory_mb: 'int',
    labels: 'any',
    /** The version of the library that runs there. */
    version: 'str',
  }),
)
export type NodeJoined = InstanceType<typeof NodeJoined>

/** A node has finished its tasks and left. */
export const NodeDrained = defineEvent('tutti.NodeDrained', {})
export type NodeDrained = InstanceType<typeof NodeDrained>

/** A node was lost; `tasks` were running there. */
export const NodeLost = typed<{ tasks: readonly string[] }>()(
  defineEvent('tutti.NodeLost', { reason: 'str', tasks: 'any' }),
)
export type NodeLost = InstanceType<typeof NodeLost>

/** The time limit of an allocation is near; from `graceSeconds` before it on, nothing starts. */
export const AllocationEnding = defineEvent('tutti.AllocationEnding', { seconds_left: 'float' })
export type AllocationEnding = InstanceType<typeof AllocationEnding>

/**
 * Tasks that were sent to a lost node and not reported as started run on another one; `count` of
 * them may have started there in the last moments, without a report.
 */
export const TaskMoved = typed<{ tasks: readonly string[] }>()(
  defineEvent('tutti.TaskMoved', { count: 'int', tasks: 'any' }),
)
export type TaskMoved = InstanceType<typeof TaskMoved>

/** The end of an attempt arrived after the task had moved or ended, and was dropped. */
export const StaleResult = defineEvent('tutti.StaleResult', { attempt: 'int' })
export type StaleResult = InstanceType<typeof StaleResult>
