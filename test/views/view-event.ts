/** Events as views read them, made by hand. */

import type { ViewEvent } from '../../src/views/panel.ts'

/** An event of a task with the executable `simulate`, unless the fields say otherwise. */
export function viewEvent(
  event_type: string,
  task_id: string | null = null,
  { attributes, ...fields }: Partial<ViewEvent> & { readonly [field: string]: unknown } = {},
): ViewEvent {
  return {
    event_type,
    event_time: 100,
    session_id: 's-1',
    backend: 'local',
    task_id,
    node_id: null,
    attributes: { executable: 'simulate', task_type: 'function', ...attributes },
    ...fields,
  }
}

/** The events of a task that succeeds, one second apart. */
export const lifeOf = (uid: string, fields: Partial<ViewEvent> = {}): ViewEvent[] =>
  ['TaskCreated', 'TaskSubmitted', 'TaskQueued', 'TaskStarted', 'TaskCompleted'].map((type, at) =>
    viewEvent(type, uid, { event_time: 100 + at, duration_seconds: 1, ...fields }),
  )
