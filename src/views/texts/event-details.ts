/** The details of events as texts, for `tutti tail` and the dashboard. Pure. */

import type { ViewEvent } from '../panel.ts'
import { firstLine, progressText, secondsText, timeText } from '../readable.ts'

/** Lists the details of an event besides its time, task and place. */
export function eventDetails(event: ViewEvent): string[] {
  const fields: Readonly<Record<string, unknown>> = { ...event }
  const { attributes } = event
  const details: string[] = []
  const seconds = fields['duration_seconds']
  if (typeof seconds === 'number') details.push(secondsText(seconds))
  for (const key of ['error_type', 'reason', 'error_message'] as const) {
    const value = attributes[key] ?? fields[key]
    if (typeof value === 'string' && value !== '') details.push(value.split('\n', 1)[0] ?? '')
  }
  for (const key of ['cpu_percent', 'memory_percent', 'gpu_percent'] as const) {
    const value = fields[key]
    if (typeof value === 'number') details.push(`${key.split('_')[0]} ${Math.round(value)} %`)
  }
  return [...details, ...customFieldTexts(event)]
}

/** Fields that every event has, or that other columns show. */
export const commonFields: ReadonlySet<string> = new Set(
  (
    'section event_type event_id event_time emit_time session_id backend task_id node_id ' +
    'attributes trace_id span_id name worker_id duration_seconds error_type reason error_message'
  ).split(' '),
)
const timeFields = new Set(['start_time', 'retry_at'])

/** Lists the fields of an event whose type is outside of the specification, as `key=value`. */
function customFieldTexts(event: ViewEvent): string[] {
  const { event_type, event_time, fraction, text } = event
  if (event_type === 'tutti.TaskProgress' && typeof fraction === 'number') {
    return [progressText(fraction, typeof text === 'string' ? text : '', maxValueLength)]
  }
  if (!event_type.includes('.')) return []
  const isOurs = event_type.startsWith('tutti.')
  return Object.entries(event).flatMap(([key, value]) => {
    if (commonFields.has(key) || value === null) return []
    const isTime = isOurs && timeFields.has(key) && typeof value === 'number'
    return [`${key}=${isTime ? timeText(value, event_time) : valueText(value)}`]
  })
}

const maxValueLength = 200

function valueText(value: unknown): string {
  const isWord = typeof value === 'string' && /^[^\s"]+$/.test(value)
  return firstLine(isWord ? value : JSON.stringify(value), maxValueLength)
}
