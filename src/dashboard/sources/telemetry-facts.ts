/** Facts about the telemetry of a live session that no event contains. */

import type { Clock } from '../../foundation/clock.ts'
import type { ViewQuery } from '../protocol.ts'
import type { TelemetryFacts } from '../queries/query-source.ts'

/** Members of a session's telemetry. They are optional: a caller may pass another object. */
interface FactsTelemetry {
  readonly droppedEvents?: number
  readonly lostLines?: number
  summary?(): { readonly telemetry: { readonly in_place_writes: number } }
}

/** Returns the facts that answer a query; `null` if the query needs none. */
export type ReadFacts = (kind: ViewQuery['kind']) => TelemetryFacts | null

/** The minimum time between two summaries, because a summary reads all tasks. */
const summaryIntervalMs = 10_000

export function createFactsReader(source: object, clock: Clock): ReadFacts {
  const telemetry: FactsTelemetry = source
  let [inPlaceWrites, readMs] = [0, -Infinity]
  return (kind) => {
    if (kind !== 'health' && kind !== 'head') return null
    const now = clock.monotonicMs()
    if (kind === 'health' && now - readMs >= summaryIntervalMs) {
      inPlaceWrites = telemetry.summary?.().telemetry.in_place_writes ?? 0
      readMs = now
    }
    const { droppedEvents = 0, lostLines = 0 } = telemetry
    return { droppedEvents, lostLines, inPlaceWrites }
  }
}
