/** The library's own namespaced events, beside the specification's closed list. */

import { defineEvent } from './define-event.ts'

/** A subscriber failed; at most one a minute for each, with the failures since the last. */
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

/** The checkpoint is written again; `lost` lines of this episode are missing. */
export const CheckpointRecovered = defineEvent('tutti.CheckpointRecovered', { lost: 'int' })

/** An attempt failed and another follows. */
export const TaskAttempt = defineEvent('tutti.TaskAttempt', {
  attempt: 'int',
  error_type: 'str',
  error_message: 'str',
})

/** A worker or node was lost; `tasks` were running there. */
export const WorkerLost = defineEvent('tutti.WorkerLost', {
  worker_id: 'str',
  reason: 'str',
  tasks: 'any',
})

/** A backend runs fewer tasks at a time than it was asked to, because the system refuses more. */
export const BackendThrottled = defineEvent('tutti.BackendThrottled', {
  reason: 'str',
  limit: 'int',
})
