/** The port through which events leave whoever makes them. */

import type { BaseEvent } from './event.ts'

/**
 * Takes events. `emit` neither waits nor throws for a valid event, and keeps the order of calls.
 */
export interface EventSink {
  emit(event: BaseEvent): void
}
