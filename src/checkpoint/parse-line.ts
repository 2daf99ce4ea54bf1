/** What one line of a checkpoint means. Pure; it never throws, whatever the text. */

import type { CheckpointLine } from './format.ts'

/**
 * `broken` is no JSON object at all, as the torn end of a file is; `invalid` is one that lacks what
 * its section must have; `unknown` is of a section that a later version may have added.
 */
export type ParsedLine =
  | { readonly kind: 'line'; readonly line: CheckpointLine }
  | { readonly kind: 'empty' }
  | { readonly kind: 'unknown'; readonly section: string }
  | { readonly kind: 'invalid' | 'broken'; readonly reason: string }

type Fields = Record<string, unknown>
type Check = (value: unknown) => boolean
type Required = readonly (readonly [field: string, check: Check])[]

/** Fields beyond these and event types that are not known are kept as they are. */
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
  if (!hasFields(value, required)) return { kind: 'invalid', reason: toReason(value, required) }
  if (section === 'event') fillIds(value)
  return { kind: 'line', line: value }
}

const isObject = (value: unknown): value is Fields =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isText: Check = (value) => typeof value === 'string'
const isTextOrNull: Check = (value) => value === null || typeof value === 'string'
const isNumber: Check = (value) => typeof value === 'number' && Number.isFinite(value)
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
      ['event_time', isNumber],
      ['emit_time', isNumber],
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

/** The specification lets an event outside of tasks and sessions go without ids. */
function fillIds(event: Fields): void {
  if (typeof event['trace_id'] !== 'string') event['trace_id'] = ''
  if (typeof event['span_id'] !== 'string') event['span_id'] = ''
  if (typeof event['name'] !== 'string') event['name'] = event['event_type']
}

function hasFields(value: Fields, required: Required): value is Fields & CheckpointLine {
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
