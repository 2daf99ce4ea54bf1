/**
 * Templates for the record's lines about tasks. Most text of these lines is equal, so the thread of
 * the record gets only the number of a template and the values that differ.
 */

import { eventLine, type FinishedSpan, spanLine } from '../checkpoint/format.ts'
import { cutTemplate, holeKinds, type Sample, samples } from '../checkpoint/writing/template.ts'
import type { CheckpointWriter } from '../checkpoint/writer.ts'
import { sharedAttributes, type TaskChange } from '../events/sink.ts'
import { createTaskEvent } from '../events/vocabulary.ts'
import type { DerivedIds } from '../events/derived-ids.ts'
import { emptyAttributes, type JsonObject } from '../foundation/json-value.ts'
import { TaskRow } from './metrics/task-row.ts'

export interface RecordTemplatesParts {
  readonly writer: Pick<CheckpointWriter, 'addTemplate'>
  readonly sessionId: string
  readonly traceId: string
  readonly ids: DerivedIds
  readonly toSpan: (record: TaskRow) => FinishedSpan
}

/** No template: the line is formatted as a whole. */
export const noTemplate = -1

export interface EventTemplate {
  readonly type: string
  readonly backend: string
  readonly node: string | null
  readonly errorType: string
  /**
   * The attributes that are part of the template; empty if the event shares its attributes with no
   * other event.
   */
  readonly attributes: JsonObject
  readonly template: number
}

interface SpanTemplate {
  readonly record: TaskRow
  readonly template: number
}

const maxKnown = 4096
/** The maximum number of templates that are searched one after the other. */
const maxPerList = 64
const [created = 0, emitted = 0, queuedAt = 0, startedAt = 0] = samples.times
const time = (at: number, value: number): Sample => ({
  text: String(at),
  kind: holeKinds.time,
  value,
})
const uid: Sample = { text: samples.uid, kind: holeKinds.uid, value: 0 }
const eventSamples: readonly Sample[] = [
  { text: samples.eventId, kind: holeKinds.eventId, value: 0 },
  { text: samples.spanId, kind: holeKinds.spanId, value: 1 },
  time(created, 2),
  time(emitted, 3),
  uid,
]
const endSamples: readonly Sample[] = [
  ...eventSamples,
  { text: String(samples.seconds), kind: holeKinds.number, value: 4 },
]

export class RecordTemplates {
  readonly #parts: RecordTemplatesParts
  readonly #events = new Map<JsonObject, EventTemplate[]>()
  readonly #spans = new Map<JsonObject, SpanTemplate[]>()
  /** Templates by content, because equal attributes may be different objects. */
  readonly #byContent = new Map<string, number>()

  constructor(parts: RecordTemplatesParts) {
    this.#parts = parts
  }

  /**
   * Returns the template of an event. The numbers that fill the holes of the template, in order:
   * event number, span number, event time, emit time, and for a final event the duration.
   */
  eventTemplateOf(change: TaskChange): EventTemplate {
    const { attributes } = change
    const known = findAlike(this.#events.get(attributes), change)
    if (known !== null) return known
    return this.#learn(change, sharedAttributes.has(attributes) ? attributes : emptyAttributes)
  }

  #learn(change: TaskChange, shared: JsonObject): EventTemplate {
    const known = this.#events.get(shared)
    const alike = findAlike(known, change)
    if (alike !== null) return alike
    const { event_type: type, backend, node_id: node, error_type: errorType } = change
    const key = JSON.stringify([
      type,
      backend,
      node,
      type === 'TaskFailed' ? errorType : '',
      shared,
    ])
    const template = this.#findOrAdd(key, () => this.#addEvent(change, shared))
    if (this.#events.size >= maxKnown) this.#events.clear()
    const added = { type, backend, node, errorType, attributes: shared, template }
    this.#events.set(shared, withAdded(known, added))
    return added
  }

  /**
   * Returns the template of a task's span. The numbers that fill the holes of the template, in
   * order: span number, start, end, milliseconds, queued time, started time.
   */
  spanTemplateOf(record: TaskRow): number {
    const { startedAttributes, queuedAttributes } = record
    const known = this.#spans.get(startedAttributes)
    if (known !== undefined) {
      for (const one of known) if (hasSameTemplate(one.record, record)) return one.template
    }
    if (record.enriched !== null || record.annotations !== null) return noTemplate
    if (!isShared(startedAttributes) || !isShared(queuedAttributes)) return noTemplate
    const labels = labelFields.map((field) => record[field])
    const key = JSON.stringify([...labels, queuedAttributes, startedAttributes])
    const template = this.#findOrAdd(key, () => this.#addSpan(record))
    if (this.#spans.size >= maxKnown) this.#spans.clear()
    this.#spans.set(startedAttributes, withAdded(known, { record, template }))
    return template
  }

  #findOrAdd(key: string, add: () => number | null): number {
    const known = this.#byContent.get(key)
    if (known !== undefined) return known
    const template = this.#byContent.size >= maxKnown ? noTemplate : (add() ?? noTemplate)
    if (this.#byContent.size < maxKnown) this.#byContent.set(key, template)
    return template
  }

  #addEvent(change: TaskChange, shared: JsonObject): number | null {
    const { sessionId, traceId } = this.#parts
    const sample = {
      ...change,
      event_time: created,
      emit_time: emitted,
      task_id: samples.uid,
      duration_seconds: samples.seconds,
      attributes: shared,
      own: { [samples.ownName]: 0 },
    }
    const event = createTaskEvent(sample, sessionId, samples.eventId)
    const member = `"${samples.ownName}":0`
    const own: Sample = {
      text: shared === emptyAttributes ? member : `,${member}`,
      kind: holeKinds.text,
      value: 0,
    }
    const expected = 'duration_seconds' in event ? endSamples : eventSamples
    return this.#add(eventLine(event, traceId, samples.spanId), [...expected, own])
  }

  #addSpan(record: TaskRow): number | null {
    const { ids, toSpan } = this.#parts
    const row = Object.assign(new TaskRow(samples.uid, 0, created, ids), {
      ...Object.fromEntries(labelFields.map((field) => [field, record[field]])),
      queuedTime: queuedAt,
      queuedAttributes: record.queuedAttributes,
      startedTime: startedAt,
      startedAttributes: record.startedAttributes,
      endTime: emitted,
    })
    const span = { ...toSpan(row), span_id: samples.spanId }
    return this.#add(spanLine(span), [
      { text: samples.spanId, kind: holeKinds.spanId, value: 0 },
      time(created, 1),
      time(emitted, 2),
      { text: String(span.duration_ms), kind: holeKinds.number, value: 3 },
      ...(record.wasQueued ? [time(queuedAt, 4)] : []),
      ...(record.wasRunning ? [time(startedAt, 5)] : []),
      uid,
    ])
  }

  #add(line: string, expected: readonly Sample[]): number | null {
    const segments = cutTemplate(line, expected)
    return segments === null ? null : this.#parts.writer.addTemplate(segments)
  }
}

function findAlike(
  known: readonly EventTemplate[] | undefined,
  { event_type: type, backend, node_id: node, error_type: errorType }: TaskChange,
): EventTemplate | null {
  if (known === undefined) return null
  for (const one of known) {
    const isAlike = one.type === type && one.backend === backend && one.node === node
    if (isAlike && (type !== 'TaskFailed' || one.errorType === errorType)) return one
  }
  return null
}

/** The fields of a task whose values are part of the template of its span. */
const labelFields = [
  'backend',
  'executable',
  'taskType',
  'passed',
  'workflowId',
  'parentSpanId',
  'errorType',
] as const

const isShared = (attributes: JsonObject): boolean =>
  attributes === emptyAttributes || sharedAttributes.has(attributes)

/** Adds a template to a list. A full list is emptied first, because it is searched linearly. */
const withAdded = <T>(known: readonly T[] = [], added: T): T[] =>
  known.length < maxPerList ? [...known, added] : [added]

/**
 * Whether the span line of `other` fits the template of `one`: the two lines differ only in the
 * values that fill the template's holes.
 */
const hasSameTemplate = (one: TaskRow, other: TaskRow): boolean =>
  one.queuedAttributes === other.queuedAttributes &&
  one.passed === other.passed &&
  one.executable === other.executable &&
  one.backend === other.backend &&
  one.taskType === other.taskType &&
  one.workflowId === other.workflowId &&
  one.parentSpanId === other.parentSpanId &&
  one.errorType === other.errorType &&
  other.enriched === null &&
  other.annotations === null
