/** Updates that a task's code sends while it runs: progress and custom events. */

import { resolveEventClass, type EventRecord, toEventRecord } from '../events/define-event.ts'
import { TaskProgress } from '../events/library-events.ts'
import type { TaskUpdate } from '../foundation/task-context.ts'
import { type EventNotice, toEventNotice } from './backend.ts'

/** An update as a worker sends it to the session's process. */
export type UpdateRecord =
  | Extract<TaskUpdate, { kind: 'progress' }>
  | { readonly kind: 'event'; readonly event: EventRecord }

/**
 * Makes an update ready to be sent. Throws `ValueError` if an event's class is not from
 * `defineEvent`.
 */
export const toUpdateRecord = (update: TaskUpdate): UpdateRecord =>
  update.kind === 'progress' ? update : { kind: 'event', event: toEventRecord(update.event) }

export function toUpdateNotice(update: UpdateRecord, taskId: string, nodeId: string): EventNotice {
  const about = { taskId, nodeId }
  if (update.kind === 'event') {
    return toEventNotice(resolveEventClass(update.event), update.event.fields, about)
  }
  const { fraction, text } = update
  return toEventNotice(TaskProgress, { fraction, text }, about)
}
