/** The latest events of a run, for the panel of events. */

import { isCompressed } from '../../checkpoint/compressed.ts'
import { readBatches } from '../../checkpoint/reader.ts'
import { statOf } from '../../foundation/regular-file.ts'
import type { ViewEvent } from '../../views/panel.ts'

const maxEvents = 5000

export class EventRing {
  #events: ViewEvent[] = []

  /** The latest events, oldest first. */
  get latest(): readonly ViewEvent[] {
    return this.#events.slice(-maxEvents)
  }

  add(event: ViewEvent): void {
    this.#events.push(event)
    if (this.#events.length >= 2 * maxEvents) this.#events = this.#events.slice(-maxEvents)
  }
}

/** How many bytes before the reached position are read. */
const tailBytes = 2 ** 21

/**
 * Resolves with the latest events before the byte `end` of the last file. The ends of compressed
 * files cannot be read alone, so their events are missing.
 */
export async function readLatestEvents(
  files: readonly string[],
  end: number,
): Promise<readonly ViewEvent[]> {
  let latest: readonly ViewEvent[] = []
  for (const path of files.toReversed()) {
    if (isCompressed(path) || latest.length >= maxEvents) break
    const last = path === files.at(-1) ? end : (statOf(path)?.size ?? 0)
    latest = [...(await readTail(path, last)), ...latest].slice(-maxEvents)
  }
  return latest
}

async function readTail(path: string, end: number): Promise<ViewEvent[]> {
  const events: ViewEvent[] = []
  const offset = Math.max(0, end - tailBytes)
  let reached = offset
  const batches = readBatches(path, {
    skipSpans: true,
    // Reading may start in the middle of a line. The rest of that line is not an event.
    from: { line: 1, offset },
    onRead: (bytes) => (reached = bytes),
    onLine(line, position) {
      if (line.section === 'event' && position.offset < end) events.push(line)
    },
  })
  for await (const _ of batches) if (reached >= end) break
  return events
}
