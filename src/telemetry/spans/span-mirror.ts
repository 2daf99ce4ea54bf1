/** The interface that passes spans to attached span processors. */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'

export interface SpanIds {
  readonly traceId: string
  readonly spanId: string
}

/** A reference to a span. Its id may be computed on access. */
export interface SpanRef {
  readonly spanId: string
}

export interface StartedSpan {
  readonly parent: SpanIds | null
  readonly name: string
  readonly time: number
  readonly attributes: JsonObject
}

/**
 * Called for every span when it starts and ends. Must not throw. Details are passed as functions,
 * so that they are created only if there are span processors.
 */
export interface SpanMirror {
  /** Returns the attributes that processors added to the span; `null` if there are none. */
  started(span: SpanRef, details: () => StartedSpan): JsonObject | null
  annotated(span: SpanRef, annotation: () => SpanAnnotation): void
  ended(span: SpanRef, finished: () => FinishedSpan): void
  /** Flushes the processors and shuts them down. Resolves no later than the deadline. */
  close(deadlineMs: number): Promise<void>
}

export const nullMirror: SpanMirror = {
  started: () => null,
  annotated() {},
  ended() {},
  close: () => Promise.resolve(),
}
