/** A manager on a clock of its own, with a checkpoint folder and a log that a test can read. */

import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { EventLine, MetricLine, SpanLine } from '../../src/checkpoint/format.ts'
import { type BaseEvent, type EventClass, stampEvent } from '../../src/events/event.ts'
import type { EventSink } from '../../src/events/sink.ts'
import type { Clock } from '../../src/foundation/clock.ts'
import { TelemetryManager } from '../../src/telemetry/manager.ts'
import type { TelemetryOptions } from '../../src/telemetry/options.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** A folder that is removed after the test. */
export function tempFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), 'tutti-telemetry-'))
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }))
  return folder
}

export interface Warning {
  readonly code: string
  readonly message: string
}

export interface OpenTelemetry {
  readonly telemetry: TelemetryManager
  readonly clock: ManualClock
  readonly warnings: Warning[]
  readonly folder: string
}

/** `undefined` removes a default of this helper. */
type Overrides = { readonly [K in keyof TelemetryOptions]?: TelemetryOptions[K] | undefined }

export const withoutFile: Overrides = { checkpointPath: undefined }

/** Not started. `clock` in the options replaces the manual one. */
export function openTelemetry(options: Overrides = {}): OpenTelemetry {
  const warnings: Warning[] = []
  const clock = new ManualClock()
  const folder = tempFolder()
  const telemetry = new TelemetryManager({
    sessionId: 's1',
    checkpointPath: folder,
    clock,
    log: { warn: (code, message) => warnings.push({ code, message }) },
    ...(options as Partial<TelemetryOptions>),
  })
  return { telemetry, clock, warnings, folder }
}

export type AnyLine = EventLine | MetricLine | SpanLine

/** The lines of the folder's only checkpoint; each must be whole. */
export function linesIn(folder: string): AnyLine[] {
  const files = readdirSync(folder).filter((name) => name.endsWith('.telemetry.jsonl'))
  if (files.length !== 1) throw new Error(`Expected one checkpoint, got ${files.join(', ')}`)
  const text = readFileSync(join(folder, files[0] ?? ''), 'utf8')
  if (text !== '' && !text.endsWith('\n')) throw new Error('The last line is torn')
  return text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as AnyLine)
}

export function eventsIn(folder: string): EventLine[] {
  return linesIn(folder).filter((line) => line.section === 'event')
}

export function spansIn(folder: string): SpanLine[] {
  return linesIn(folder).filter((line) => line.section === 'span')
}

export function metricsIn(folder: string): MetricLine[] {
  return linesIn(folder).filter((line) => line.section === 'metric')
}

export const typesOf = (events: readonly { readonly event_type: string }[]): string[] =>
  events.map(({ event_type: type }) => type)

/** Emits an event of the task `uid`, as a session would, at the clock's time. */
export function emitTaskEvent(
  { sink, clock }: { readonly sink: EventSink; readonly clock: Clock },
  eventClass: Pick<EventClass, 'eventType' | 'schema'>,
  uid: string,
  fields: Readonly<Record<string, unknown>> = {},
): BaseEvent {
  const extras = Object.fromEntries(
    Object.entries(eventClass.schema).map(([name, spec]) => [name, spec.fallback]),
  )
  const event = stampEvent(eventClass as EventClass, clock, {
    ...extras,
    session_id: 's1',
    backend: eventClass.eventType === 'TaskCreated' ? '' : 'local',
    task_id: uid,
    attributes: { executable: './simulate', task_type: 'compute' },
    ...fields,
  })
  sink.emit(event)
  return event
}

/** The next turn of the event loop, after everything that is due now. */
export const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

/** Waits for pending promises and immediates. */
export async function turns(count: number): Promise<void> {
  for (let left = count; left > 0; left--) await turn()
}
