/** Formats and parses the lines of a checkpoint, and checks their fields. */

import type { BaseEvent, BaseFields } from '../events/event.ts'
import type { JsonObject } from '../foundation/json-value.ts'

/** The format of a record, stored in SessionStarted. Readers should refuse other major versions. */
export const checkpointFormat = 'tutti-telemetry/1'

/** An event with the ids of the span it belongs to. */
export interface EventLine extends BaseFields {
  readonly section: 'event'
  readonly event_type: string
  readonly trace_id: string
  readonly span_id: string
  /** An alias of `event_type`. */
  readonly name: string
  readonly [field: string]: unknown
}

/** The current value of each metric by name. */
export interface MetricLine {
  readonly section: 'metric'
  readonly checkpoint_time: number
  readonly [instrument: string]: unknown
}

/** An event within a span; `time` is in wall-clock seconds. */
export interface SpanAnnotation {
  readonly name: string
  readonly time: number
  readonly attributes: JsonObject
}

/** A span that has ended. Times are in wall-clock seconds. */
export interface FinishedSpan {
  readonly name: string
  readonly span_id: string
  readonly trace_id: string
  readonly parent_span_id: string | null
  readonly start_time: number
  readonly end_time: number
  readonly duration_ms: number
  readonly status_code: 'UNSET' | 'OK' | 'ERROR'
  readonly status_description: string | null
  readonly attributes: JsonObject
  readonly events: readonly SpanAnnotation[]
  /** Linked spans. A string is the id of a span of the same trace. */
  readonly links?: readonly (string | SpanLink)[]
}

/** A link to a span of another trace. */
export interface SpanLink {
  readonly trace_id: string
  readonly span_id: string
}

export interface SpanLine extends FinishedSpan {
  readonly section: 'span'
}

export type CheckpointLine = EventLine | MetricLine | SpanLine

/** Formats an event. The ids come first, so that the JSON text is sliced only once, for speed. */
export function eventLine(event: BaseEvent, traceId: string, spanId: string): string {
  const ids = `"trace_id":"${traceId}","span_id":"${spanId}","name":"${event.event_type}"`
  return `{"section":"event",${ids},${JSON.stringify(event).slice(1)}\n`
}

const spanHead = '{"section":"span",'

/** Whether the line is a complete span. Does not parse it. */
export const isCompleteSpan = (text: string): boolean =>
  text.startsWith(spanHead) && text.endsWith('}') && !text.includes('\0')

/** Whether a span line describes a request to a model, according to the beginning of its name. */
export const isRequestSpan = (text: string): boolean =>
  text.startsWith('"name":"chat ', spanHead.length) ||
  text.startsWith('"name":"text_completion ', spanHead.length)

export function spanLine(span: FinishedSpan): string {
  return `${spanHead}${JSON.stringify(span).slice(1)}\n`
}

export function metricLine(time: number, values: Readonly<Record<string, number>>): string {
  return `${JSON.stringify({ section: 'metric', checkpoint_time: time, ...values })}\n`
}

/**
 * The result for a line. `broken`: the line is not a JSON object, for example because it is torn.
 * `invalid`: a required field is missing. `unknown`: the section belongs to a later version.
 */
export type ParsedLine =
  | { readonly kind: 'line'; readonly line: CheckpointLine }
  | { readonly kind: 'empty' }
  | { readonly kind: 'unknown'; readonly section: string }
  | { readonly kind: 'invalid' | 'broken'; readonly reason: string }

type Fields = Record<string, unknown>
type FieldCheck = (value: unknown) => boolean
type RequiredFields = readonly (readonly [field: string, check: FieldCheck])[]

/** Parses a line. Never throws. Keeps additional fields and unknown event types unchanged. */
export function parseLine(text: string): ParsedLine {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return describeBroken(text)
  }
  if (!isObject(value)) return { kind: 'broken', reason: 'not a JSON object' }
  const { section } = value
  if (typeof section !== 'string') return { kind: 'invalid', reason: 'no `section`' }
  const required = sections.get(section)
  if (required === undefined) return { kind: 'unknown', section }
  const isValid = section === 'event' ? isValidEvent(value) : hasFields(value, required)
  if (!isValid) return { kind: 'invalid', reason: describeInvalid(value, required) }
  if (section === 'event') fillIds(value)
  return { kind: 'line', line: value as Fields & CheckpointLine }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isText: FieldCheck = (value) => typeof value === 'string'
const isTextOrNull: FieldCheck = (value) => value === null || typeof value === 'string'
const isNumber: FieldCheck = (value) => typeof value === 'number' && Number.isFinite(value)
/** Whether the value is a time in seconds that a `Date` can represent. */
const isValidTime: FieldCheck = (value) => isNumber(value) && Math.abs(value as number) <= 8.64e12
const isStatus: FieldCheck = (value) => value === 'UNSET' || value === 'OK' || value === 'ERROR'
const isAnnotation: FieldCheck = (value) =>
  isObject(value) &&
  isText(value['name']) &&
  isNumber(value['time']) &&
  isObject(value['attributes'])
const isAnnotations: FieldCheck = (value) => Array.isArray(value) && value.every(isAnnotation)

const sections = new Map<string, RequiredFields>([
  [
    'event',
    [
      ['event_id', isText],
      ['event_type', isText],
      ['event_time', isValidTime],
      ['emit_time', isValidTime],
      ['session_id', isText],
      ['backend', isText],
      ['task_id', isTextOrNull],
      ['node_id', isTextOrNull],
      ['attributes', isObject],
    ],
  ],
  ['metric', [['checkpoint_time', isNumber]]],
  [
    'span',
    [
      ['name', isText],
      ['span_id', isText],
      ['trace_id', isText],
      ['parent_span_id', isTextOrNull],
      ['start_time', isNumber],
      ['end_time', isNumber],
      ['duration_ms', isNumber],
      ['status_code', isStatus],
      ['status_description', isTextOrNull],
      ['attributes', isObject],
      ['events', isAnnotations],
    ],
  ],
])

/** The checks of `event` in `sections` as plain code, for speed, because most lines are events. */
const isValidEvent = (value: Fields): boolean =>
  typeof value['event_id'] === 'string' &&
  typeof value['event_type'] === 'string' &&
  isValidTime(value['event_time']) &&
  isValidTime(value['emit_time']) &&
  typeof value['session_id'] === 'string' &&
  typeof value['backend'] === 'string' &&
  isTextOrNull(value['task_id']) &&
  isTextOrNull(value['node_id']) &&
  isObject(value['attributes'])

/**
 * Fills in ids that are missing, as the specification allows for events outside tasks and sessions.
 */
function fillIds(event: Fields): void {
  if (typeof event['trace_id'] !== 'string') event['trace_id'] = ''
  if (typeof event['span_id'] !== 'string') event['span_id'] = ''
  if (typeof event['name'] !== 'string') event['name'] = event['event_type']
}

function hasFields(value: Fields, required: RequiredFields): boolean {
  return required.every(([field, check]) => check(value[field]))
}

function describeInvalid(value: Fields, required: RequiredFields): string {
  const [field] = required.find(([name, check]) => !check(value[name])) ?? ['section']
  const problemText = field in value ? 'with a wrong' : 'without'
  return `${String(value['section'])} line ${problemText} \`${field}\``
}

function describeBroken(text: string): ParsedLine {
  if (text.trim() === '') return { kind: 'empty' }
  return { kind: 'broken', reason: text.includes('\0') ? 'NUL bytes' : 'invalid JSON' }
}
