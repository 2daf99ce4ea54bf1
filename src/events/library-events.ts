/**
 * The library's own namespaced events, beside the specification's closed list. A new one is a
 * definition here and its row in `docs/events.md`.
 */

import { defineEvent } from './define-event.ts'

/** A subscriber failed; at most one event a minute for each, with the failures since the last. */
export const SubscriberError = defineEvent('tutti.SubscriberError', {
  subscriber: 'str',
  count: 'int',
  message: 'str',
})

/** The checkpoint cannot be written for now; the run goes on and lines wait in memory. */
export const CheckpointDegraded = defineEvent('tutti.CheckpointDegraded', {
  errno: 'str',
  lines_pending: 'int',
})

/** The checkpoint is written again; `lost` lines were dropped meanwhile. */
export const CheckpointRecovered = defineEvent('tutti.CheckpointRecovered', { lost: 'int' })

/** An attempt failed and another follows. Worker and times are those of the attempt. */
export const TaskAttempt = defineEvent('tutti.TaskAttempt', {
  attempt: 'int',
  /** `null` if the attempt failed before it began, as `start_time`; the duration is 0 then. */
  worker_id: 'any',
  start_time: 'any',
  duration_seconds: 'float',
  error_type: 'str',
  error_message: 'str',
})

/** A worker or node was lost; `tasks` were running there. */
export const WorkerLost = defineEvent('tutti.WorkerLost', {
  worker_id: 'str',
  reason: 'str',
  tasks: 'any',
})

/** A backend runs fewer tasks at a time than configured, because the system refuses more. */
export const BackendThrottled = defineEvent('tutti.BackendThrottled', {
  reason: 'str',
  limit: 'int',
})

/** An inference engine was lost; it is restarted. */
export const EngineLost = defineEvent('tutti.EngineLost', { worker_id: 'str', reason: 'str' })

/** An inference engine has ended a batch of requests. */
export const Batch = defineEvent('tutti.Batch', {
  worker_id: 'str',
  size: 'int',
  /** How long the oldest request had waited. */
  wait_seconds: 'float',
  duration_seconds: 'float',
  error_message: 'any',
})

/** The last dependency of a workflow's task has ended; it had waited for `wait_seconds`. */
export const TaskResolved = defineEvent('tutti.TaskResolved', {
  dependencies: 'int',
  wait_seconds: 'float',
})

/** A task was not run: a result with the same `key` is `stored`, or `shared` by an equal call. */
export const ResultReused = defineEvent('tutti.ResultReused', { key: 'str', source: 'str' })

/** A workflow's scope was entered. */
export const WorkflowStarted = defineEvent('tutti.WorkflowStarted', {
  workflow_id: 'str',
  parent_workflow_id: 'any',
})

/** A workflow's scope was left, and its tasks have ended. */
export const WorkflowEnded = defineEvent('tutti.WorkflowEnded', {
  workflow_id: 'str',
  duration_seconds: 'float',
  error_message: 'any',
})
