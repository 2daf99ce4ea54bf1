/** Converts the results of attempts to the form that they have in messages. */

import type { TaskReport } from '../../backends/backend.ts'
import { type ErrorRecord, mapThrownValues } from '../../foundation/error-record.ts'
import { messageOf } from '../../foundation/errors.ts'
import { toJsonValue } from '../../foundation/json-value.ts'
import { ResultNotSerializableError } from '../../foundation/task-errors.ts'
import { packCompletions, type WireCompletion } from './completions.ts'
import type { ResultsMessage, WireResult } from './messages.ts'
import { toPortable } from './portable.ts'

/** A result. `WireCompletion` is its short form, used if the worker's id is the only fact. */
export type AttemptResult = WireCompletion | WireResult
export type ResultReport = Exclude<TaskReport, { kind: 'start' }>

export interface EndedAttempt {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly workerId: string | null
}

/** Converts a report to a result. A value that cannot be sent becomes a failure. */
export function toResult(
  { index, uid, attempt, beganMs, workerId }: EndedAttempt,
  report: ResultReport,
  atMs: number,
  toRecord: (error: unknown) => ErrorRecord,
): AttemptResult {
  const facts = report.facts ?? null
  const toEnd = (outcome: WireResult['outcome']): WireResult => {
    return { index, uid, attempt, beganMs, atMs, workerId, facts, outcome }
  }
  if (report.kind === 'cancel') return toEnd({ kind: 'cancel', reason: report.reason })
  if (report.kind === 'fail') {
    const error = mapThrownValues(toRecord(report.error), toPortableValue)
    return toEnd({ kind: 'fail', error, isThrown: report.isThrown ?? false })
  }
  let value: unknown
  try {
    value = toPortable(report.value, 'return_value', ResultNotSerializableError)
  } catch (error) {
    return toEnd({ kind: 'fail', error: toRecord(error), isThrown: true })
  }
  if (beganMs !== null && workerId !== null && hasOnlyWorkerId(facts)) {
    return { index, uid, attempt, beganMs, atMs, workerId, value }
  }
  return toEnd({ kind: 'complete', value })
}

function hasOnlyWorkerId(facts: object | null): boolean {
  for (const key in facts) if (key !== 'workerId') return false
  return true
}

const isCompletion = (end: AttemptResult): end is WireCompletion =>
  (end as Partial<WireResult>).outcome === undefined

/** Packs results for a message. Those in the short form become columns. */
export function packResults(
  all: readonly AttemptResult[],
): Pick<ResultsMessage, 'completions' | 'ends'> {
  const completions: WireCompletion[] = []
  const ends: WireResult[] = []
  for (const end of all) {
    if (isCompletion(end)) completions.push(end)
    else ends.push(end)
  }
  return { completions: packCompletions(completions), ends }
}

export function toWireResult(end: AttemptResult): WireResult {
  if (!isCompletion(end)) return end
  const { value, ...completion } = end
  return { ...completion, facts: null, outcome: { kind: 'complete', value } }
}

/** Returns a thrown value, or its JSON form if it cannot leave its process. */
function toPortableValue(value: unknown): unknown {
  try {
    return toPortable(value, 'error', ResultNotSerializableError)
  } catch {
    return toJsonValue(value)
  }
}

const maxTextLength = 10_000
/** The short form of an error omits longer fields, and all fields beyond `maxFields`. */
const maxFieldLength = 1000
const maxFields = 20

const truncate = (text: string): string => text.slice(0, maxTextLength)

/** Returns the short form of an error that is too large for the store. */
export function toShortError(error: ErrorRecord, causes = 1): ErrorRecord {
  if (!error.isError) return { isError: false, value: truncate(messageOf(error.value)) }
  const { type, lineage, name, message, stack, cause } = error
  const fields = Object.entries(error.fields).filter(
    ([, value]) => JSON.stringify(value).length <= maxFieldLength,
  )
  return {
    isError: true,
    type,
    ...(lineage === undefined ? {} : { lineage }),
    name: truncate(name),
    message: truncate(message),
    stack: truncate(stack),
    fields: Object.fromEntries(fields.slice(0, maxFields)),
    ...(cause?.isError === true && causes > 0 ? { cause: toShortError(cause, causes - 1) } : {}),
  }
}
