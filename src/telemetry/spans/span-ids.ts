/** The ids of a span. */

export interface SpanIds {
  readonly traceId: string
  readonly spanId: string
}
