/** The format of a checkpoint: how lines are written and parsed. No other file knows the keys. */

import type { BaseEvent, BaseFields } from '../events/event.ts'
import type { JsonObject } from '../foundation/json-value.ts'

/** An attribute of SessionStarted; a reader of another major version should refuse the file. */
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

/** The current value of each metric by name, without nesting. */
export interface MetricLine {
  readonly section: 'metric'
  readonly checkpoint_time: number
  readonly [instrument: string]: unknown
}

/** Something that happened while a span was open; `time` is wall-clock seconds. */
export interface SpanAnnotation {
  readonly name: string
  readonly time: number
  readonly attributes: JsonObject
}

/** A span that has ended; times are wall-clock seconds. */
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
  /** Linked spans; a span of the same trace is given by its id alone. */
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

/**
 * Cannot throw, because events are plain JSON by construction. The ids come first, so that the JSON
 * text is sliced only once, which halves the garbage per line.
 */
export function eventLine(event: BaseEvent, traceId: string, spanId: string): string {
  const ids = `"trace_id":"${traceId}","span_id":"${spanId}","name":"${event.event_type}"`
  return `{"section":"event",${ids},${JSON.stringify(event).slice(1)}\n`
}

const spanHead = '{"section":"span",'

/** Whether the text is one complete span; checks only its first and last characters. */
export const isWholeSpan = (text: string): boolean =>
  text.startsWith(spanHead) && text.endsWith('}') && !text.includes('\0')

export function spanLine(span: FinishedSpan): string {
  return `${spanHead}${JSON.stringify(span).slice(1)}\n`
}

export function metricLine(time: number, values: Readonly<Record<string, number>>): string {
  return `${JSON.stringify({ section: 'metric', checkpoint_time: time, ...values })}\n`
}

/**
 * `broken`: not a JSON object, such as a torn last line. `invalid`: an object without a field that
 * its section requires. `unknown`: a section that a later version may have added.
 */
export type ParsedLine =
  | { readonly kind: 'line'; readonly line: CheckpointLine }
  | { readonly kind: 'empty' }
  | { readonly kind: 'unknown'; readonly section: string }
  | { readonly kind: 'invalid' | 'broken'; readonly reason: string }

type Fields = Record<string, unknown>
type Check = (value: unknown) => boolean
type Required = readonly (readonly [field: string, check: Check])[]

/** Parses one line; never throws. Keeps additional fields and unknown event types unchanged. */
export function parseLine(text: string): ParsedLine {
  let value: unknown
  try {
    value = JSON.parse(text)
  } catch {
    return toBroken(text)
  }
  if (!isObject(value)) return { kind: 'broken', reason: 'not a JSON object' }
  const { section } = value
  if (typeof section !== 'string') return { kind: 'invalid', reason: 'no `section`' }
  const required = sections.get(section)
  if (required === undefined) return { kind: 'unknown', section }
  const isValid = section === 'event' ? isEvent(value) : hasFields(value, required)
  if (!isValid) return { kind: 'invalid', reason: toReason(value, required) }
  if (section === 'event') fillIds(value)
  return { kind: 'line', line: value as Fields & CheckpointLine }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isText: Check = (value) => typeof value === 'string'
const isTextOrNull: Check = (value) => value === null || typeof value === 'string'
const isNumber: Check = (value) => typeof value === 'number' && Number.isFinite(value)
/** Whether a `Date` can represent these seconds; any other value is damage. */
const isTime: Check = (value) => isNumber(value) && Math.abs(value as number) <= 8.64e12
const isStatus: Check = (value) => value === 'UNSET' || value === 'OK' || value === 'ERROR'
const isAnnotation: Check = (value) =>
  isObject(value) &&
  isText(value['name']) &&
  isNumber(value['time']) &&
  isObject(value['attributes'])
const isAnnotations: Check = (value) => Array.isArray(value) && value.every(isAnnotation)

const sections = new Map<string, Required>([
  [
    'event',
    [
      ['event_id', isText],
      ['event_type', isText],
      ['event_time', isTime],
      ['emit_time', isTime],
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

/** The checks of the table, written out for speed because five of six lines are events. */
const isEvent = (value: Fields): boolean =>
  typeof value['event_id'] === 'string' &&
  typeof value['event_type'] === 'string' &&
  isTime(value['event_time']) &&
  isTime(value['emit_time']) &&
  typeof value['session_id'] === 'string' &&
  typeof value['backend'] === 'string' &&
  isTextOrNull(value['task_id']) &&
  isTextOrNull(value['node_id']) &&
  isObject(value['attributes'])

/** The specification allows events outside of tasks and sessions to have no ids. */
function fillIds(event: Fields): void {
  if (typeof event['trace_id'] !== 'string') event['trace_id'] = ''
  if (typeof event['span_id'] !== 'string') event['span_id'] = ''
  if (typeof event['name'] !== 'string') event['name'] = event['event_type']
}

function hasFields(value: Fields, required: Required): boolean {
  return required.every(([field, check]) => check(value[field]))
}

function toReason(value: Fields, required: Required): string {
  const [field] = required.find(([name, check]) => !check(value[name])) ?? ['section']
  const what = field in value ? 'with a wrong' : 'without'
  return `${String(value['section'])} line ${what} \`${field}\``
}

function toBroken(text: string): ParsedLine {
  if (text.trim() === '') return { kind: 'empty' }
  return { kind: 'broken', reason: text.includes('\0') ? 'NUL bytes' : 'invalid JSON' }
}
