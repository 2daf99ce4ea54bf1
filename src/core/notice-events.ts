/** What backends notice, as events of the library's own. */

import type { Notice } from '../backends/backend.ts'
import { type BaseEvent, stampEvent } from '../events/event.ts'
import { BackendThrottled, Batch, EngineLost, WorkerLost } from '../events/library-events.ts'
import type { Clock } from '../foundation/clock.ts'
import { maskSecrets } from '../foundation/secrets.ts'

/** Notices that are recorded as they are make no event. */
type ToldNotice = Exclude<Notice, { readonly kind: 'span' | 'measurement' }>

export function toNoticeEvent(
  notice: ToldNotice,
  from: { readonly clock: Clock; readonly session_id: string; readonly backend: string },
): BaseEvent {
  const { clock, session_id, backend } = from
  const common = { session_id, backend }
  switch (notice.kind) {
    case 'throttled': {
      const { limit, reason } = notice
      const fields = { ...common, limit, reason: maskSecrets(reason) }
      return stampEvent(BackendThrottled, clock, fields)
    }
    case 'worker-lost': {
      const { workerId: worker_id, nodeId: node_id, tasks } = notice
      const reason = maskSecrets(notice.reason)
      return stampEvent(WorkerLost, clock, { ...common, node_id, worker_id, reason, tasks })
    }
    case 'engine-lost': {
      const { workerId: worker_id } = notice
      const reason = maskSecrets(notice.reason)
      return stampEvent(EngineLost, clock, { ...common, worker_id, reason })
    }
    default: {
      const { workerId: worker_id, size, waitSeconds, durationSeconds, error } = notice
      return stampEvent(Batch, clock, {
        ...common,
        worker_id,
        size,
        wait_seconds: waitSeconds,
        duration_seconds: durationSeconds,
        error_message: error === null ? null : maskSecrets(error),
      })
    }
  }
}
