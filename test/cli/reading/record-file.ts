/** Records of runs whose course is known, as files. */

import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { ViewEvent } from '../../../src/views/panel.ts'
import { eventsOf, type SyntheticRun } from '../../views/synthetic-run.ts'

/** A new folder; the caller removes it. */
export function recordFolder(): { readonly path: string; remove(): void } {
  const path = mkdtempSync(join(tmpdir(), 'tutti-record-'))
  return { path, remove: () => rmSync(path, { recursive: true }) }
}

/** The lines of a checkpoint with these events, as a session writes them. */
export function linesOf(events: readonly ViewEvent[], sessionId = 's-1'): string {
  return events
    .map((event, at) => {
      const ids = { trace_id: '0'.repeat(32), span_id: '0'.repeat(16), name: event.event_type }
      const event_id = at.toString(16).padStart(32, '0')
      const line = { section: 'event', ...ids, event_id, emit_time: event.event_time, ...event }
      return `${JSON.stringify({ ...line, session_id: sessionId })}\n`
    })
    .join('')
}

/** Writes `<sessionId>.<seconds>.telemetry.jsonl`, and returns its path. */
export function writeRecord(
  folder: string,
  run: SyntheticRun,
  { sessionId = 's-1', seconds = 1_790_000_000, tail = '' } = {},
): string {
  const path = join(folder, `${sessionId}.${seconds}.telemetry.jsonl`)
  writeFileSync(path, `${linesOf(eventsOf(run), sessionId)}${tail}`)
  return path
}
