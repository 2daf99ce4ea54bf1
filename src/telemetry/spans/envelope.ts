/** An item of the bus: an event with its span, an ended span, or both. */

import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { BaseEvent } from '../../events/event.ts'
import type { TaskRow } from '../metrics/task-row.ts'

export class Envelope {
  readonly event: BaseEvent | null
  readonly spanId: string
  /** An ended span. A task's record is converted to a span only if needed. */
  readonly ended: TaskRow | FinishedSpan | null
  /** `null` for the session's trace. */
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
