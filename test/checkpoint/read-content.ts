/** Reads whole checkpoints, and builds lines for them. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import {
  eventLine,
  metricLine,
  spanLine,
  type CheckpointLine,
} from '../../src/checkpoint/format.ts'
import { readCheckpoint } from '../../src/checkpoint/reader.ts'
import type { BadLine, ReadOptions, ReadSummary } from '../../src/checkpoint/reader.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { TaskCreated } from '../../src/events/vocabulary.ts'
import { tempFolder } from './open-writer.ts'

export interface Reading {
  readonly lines: CheckpointLine[]
  readonly bad: BadLine[]
  readonly summary: ReadSummary
}

export async function readFile(path: string, options: ReadOptions = {}): Promise<Reading> {
  const bad: BadLine[] = []
  const reading = readCheckpoint(path, { onBadLine: (line) => bad.push(line), ...options })
  const lines: CheckpointLine[] = []
  let step = await reading.next()
  for (; step.done !== true; step = await reading.next()) lines.push(step.value)
  return { lines, bad, summary: step.value }
}

export function readContent(content: string | Buffer, options?: ReadOptions): Promise<Reading> {
  const path = join(tempFolder(), 'x.telemetry.jsonl')
  writeFileSync(path, content)
  return readFile(path, options)
}

export const metric = (value: number): string => metricLine(value, { value })

export function taskCreated(text: string): string {
  const attributes = { [text]: text, list: [text] }
  const event = makeEvent(TaskCreated, { session_id: 's', backend: '', task_id: text, attributes })
  return eventLine(event, 'a'.repeat(32), 'b'.repeat(16))
}

export const spanOf = (span_id: string): string =>
  spanLine({
    name: 'task',
    span_id,
    trace_id: 'a'.repeat(32),
    parent_span_id: null,
    start_time: 1,
    end_time: 2,
    duration_ms: 1000,
    status_code: 'UNSET',
    status_description: null,
    attributes: {},
    events: [{ name: 'TaskQueued', time: 1.5, attributes: {} }],
  })

export const span = spanOf('b'.repeat(16))

/** A field that only some sections have. */
export const fieldOf = (line: CheckpointLine, field: string): unknown => Reflect.get(line, field)
