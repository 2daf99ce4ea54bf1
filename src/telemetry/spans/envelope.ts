/** What travels on the bus: an event with its span, a span that ended, or both. */

import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { BaseEvent } from '../../events/event.ts'
import type { TaskRecord } from '../metrics/task-record.ts'

export class Envelope {
  readonly event: BaseEvent | null
  readonly spanId: string
  /** A task's record becomes a span only where one is needed. */
  readonly ended: TaskRecord | FinishedSpan | null
  /** `null`: the session's. */
  readonly traceId: string | null

  constructor(
    event: Envelope['event'],
    spanId: string,
    ended: Envelope['ended'] = null,
    traceId: string | null = null,
  ) {
    this.event = event
    this.spanId = spanId
    this.ended = ended
    this.traceId = traceId
  }
}
