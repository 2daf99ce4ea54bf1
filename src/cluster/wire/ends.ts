/** Ends of attempts as messages have them. */

import type { TaskReport } from '../../backends/backend.ts'
import type { ErrorRecord } from '../../foundation/error-record.ts'
import { ResultNotSerializableError } from '../../foundation/task-errors.ts'
import type { WireCompletion } from './completions.ts'
import type { WireEnd } from './messages.ts'
import { expectPortable } from './portable.ts'

/** In the short form where there is nothing else to say. */
export type End = WireCompletion | WireEnd
export type EndReport = Exclude<TaskReport, { kind: 'start' }>

/** What an agent knows of an attempt that has ended. */
export interface EndedAttempt {
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly workerId: string | null
}

/** A value that cannot be sent is a failure. */
export function toEnd(
  attempt: EndedAttempt,
  report: EndReport,
  atMs: number,
  toRecord: (error: unknown) => ErrorRecord,
): End {
  const { index, uid, attempt: number, beganMs, workerId } = attempt
  const facts = report.facts ?? null
  const common = { index, uid, attempt: number, beganMs, atMs, workerId, facts }
  if (report.kind === 'cancel') {
    return { ...common, outcome: { kind: 'cancel', reason: report.reason } }
  }
  if (report.kind === 'fail') {
    const { error, isThrown = false } = report
    return { ...common, outcome: { kind: 'fail', error: toRecord(error), isThrown } }
  }
  const { value } = report
  try {
    expectPortable(value, 'return_value', ResultNotSerializableError)
  } catch (error) {
    return { ...common, outcome: { kind: 'fail', error: toRecord(error), isThrown: true } }
  }
  if (beganMs !== null && workerId !== null && isOnlyWorker(facts)) {
    return { index, uid, attempt: number, beganMs, atMs, workerId, value }
  }
  return { ...common, outcome: { kind: 'complete', value } }
}

function isOnlyWorker(facts: object | null): boolean {
  for (const key in facts) if (key !== 'workerId') return false
  return true
}

export const isCompletion = (end: End): end is WireCompletion => !('outcome' in end)

export function toWireEnd(end: End): WireEnd {
  if (!isCompletion(end)) return end
  const { value, ...completion } = end
  return { ...completion, facts: null, outcome: { kind: 'complete', value } }
}

/** An error that is too large for a message keeps its type and the start of its texts. */
export function cutOff(end: WireEnd): WireEnd {
  if (end.outcome.kind !== 'fail' || !end.outcome.error.isError) return end
  const { error } = end.outcome
  const short = {
    isError: true,
    type: error.type,
    ...(error.lineage === undefined ? {} : { lineage: error.lineage }),
    name: error.name,
    message: error.message.slice(0, 10_000),
    stack: error.stack.slice(0, 10_000),
    fields: {},
  } as const
  return { ...end, outcome: { ...end.outcome, error: short } }
}
