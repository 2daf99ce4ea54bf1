/** Judges every text in JSON of unknown structure, before and after an engine. Pure. */

import type { Steps } from '../../runtime/turn-budget.ts'
import type { WireFields } from '../generation/inference-engine.ts'
import { inferenceError } from '../generation/inference-errors.ts'
import { isText, textsIn } from '../generation/fields/message-text.ts'
import type { Guard } from './guard.ts'
import { rejectedError, separator, unreadableError } from './guarded-input.ts'

const what = 'the request'

/** Returns the fields as the prompt rules pass them; throws if a rule rejects them. */
export function* guardFields(fields: WireFields, guard: Guard): Steps<WireFields> {
  const unreadable = ['input', 'prompt'].find((name) => hasNumbers(fields[name]))
  if (unreadable !== undefined) throw unreadableError(unreadable)
  const texts = textsIn(fields)
  const tooLong = guard.checkLength(texts.reduce((sum, { length }) => sum + length, 0))
  if (tooLong.some(({ action }) => action === 'reject')) throw rejectedError(what, tooLong)
  // Judges the joined texts first, because a phrase may be divided between texts. Names of fields,
  // such as those of a schema, are judged too, but never redacted.
  const names = new Set(namesIn(fields))
  const whole = yield* guard.checkInput([...texts, ...names].join(separator))
  if (whole.action === 'block') throw rejectedError(what, whole.hits)
  if (whole.hits.length === 0) return fields
  const judged = new Map<string, string>()
  for (const text of new Set(texts)) {
    const verdict = yield* guard.checkInput(text)
    if (verdict.action === 'block') throw rejectedError(what, verdict.hits)
    judged.set(text, verdict.text)
  }
  return replaceTexts(fields, (text) => judged.get(text) ?? text) as WireFields
}

/** Returns a whole JSON answer as the answer rules pass it; throws if a rule rejects it. */
export function redactAnswer(json: string, guard: Guard): string {
  const judge = (text: string): string => {
    const output = guard.openOutput()
    if (output === null) return text
    const parts = [output.push(text), output.finish()]
    if (parts.some(({ isBlocked }) => isBlocked)) {
      throw inferenceError('content_filter', 'the answer was rejected by a rule')
    }
    return parts.map(({ release }) => release).join('')
  }
  return JSON.stringify(replaceTexts(JSON.parse(json), judge))
}

const hasNumbers = (value: unknown): boolean =>
  Array.isArray(value) && value.some((item) => typeof item === 'number' || hasNumbers(item))

function namesIn(value: unknown): string[] {
  if (typeof value !== 'object' || value === null) return []
  const names = Array.isArray(value) ? [] : Object.keys(value)
  return [...names, ...Object.values(value).flatMap(namesIn)]
}

function replaceTexts(value: unknown, replace: (text: string) => string, name = ''): unknown {
  if (typeof value === 'string') return isText(value, name) ? replace(value) : value
  if (Array.isArray(value)) return value.map((item) => replaceTexts(item, replace, name))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, replaceTexts(item, replace, key)]),
  )
}
