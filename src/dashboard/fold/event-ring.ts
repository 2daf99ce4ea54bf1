/** The latest events of a run, for the panel of events. */

import { isCompressed } from '../../checkpoint/compressed.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import type { ViewEvent } from '../../views/panel.ts'

const maxEvents = 5000

export class EventRing {
  #events: ViewEvent[] = []

  /** Oldest first. */
  get latest(): readonly ViewEvent[] {
    return this.#events.slice(-maxEvents)
  }

  add(event: ViewEvent): void {
    this.#events.push(event)
    if (this.#events.length >= 2 * maxEvents) this.#events = this.#events.slice(-maxEvents)
  }
}

/** The number of bytes before `end` that are read. */
const tailBytes = 2 ** 21

/**
 * Resolves with the latest events before the byte `end`, for a record whose views were loaded from
 * a snapshot. The ring stays empty for a compressed file, whose end cannot be read alone.
 */
export async function readLatestEvents(path: string, end: number): Promise<EventRing> {
  const ring = new EventRing()
  if (isCompressed(path)) return ring
  const offset = Math.max(0, end - tailBytes)
  const batches = readBatches(path, {
    skipSpans: true,
    // Reading may start inside a line, which is not an event.
    from: { line: 1, offset },
    onLine(line, position) {
      if (line.section === 'event' && position.offset < end) ring.add(line)
    },
  })
  for await (const _ of batches);
  return ring
}
