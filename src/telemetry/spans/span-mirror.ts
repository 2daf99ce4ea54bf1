/** The interface that passes spans to attached span processors. */

import type { FinishedSpan, SpanAnnotation } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type { SpanIds } from './span-ids.ts'

export interface StartedSpan {
  readonly parent: SpanIds | null
  readonly name: string
  readonly time: number
  readonly attributes: JsonObject
}

/**
 * Called for every span when it starts and ends. Must not throw. Details are passed as functions,
 * so that nothing is created without span processors.
 */
export interface SpanMirror {
  /** Returns the attributes that processors added to the span; `null` if there are none. */
  started(spanId: string, span: () => StartedSpan): JsonObject | null
  annotated(spanId: string, annotation: () => SpanAnnotation): void
  ended(spanId: string, finished: () => FinishedSpan): void
  /** Flushes the processors and shuts them down. Resolves no later than the deadline. */
  close(deadlineMs: number): Promise<void>
}

export const nullMirror: SpanMirror = {
  started: () => null,
  annotated() {},
  ended() {},
  close: () => Promise.resolve(),
}
