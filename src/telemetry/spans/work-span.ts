/** The spans of work that a backend tells about when it is over. */

import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { WorkSpan } from '../../events/sink.ts'

export function toWorkSpan(work: WorkSpan, traceId: string, parentSpanId: string): FinishedSpan {
  const endTime = Math.max(work.endTime, work.startTime)
  return {
    name: work.name,
    span_id: work.spanId,
    trace_id: traceId,
    parent_span_id: parentSpanId,
    start_time: work.startTime,
    end_time: endTime,
    duration_ms: (endTime - work.startTime) * 1000,
    status_code: work.error === null ? 'UNSET' : 'ERROR',
    status_description: work.error,
    attributes: work.attributes,
    events: [],
    ...(work.links.length === 0 ? {} : { links: work.links }),
  }
}
