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
