/** The ends of attempts that ran on a lost node, which no agent reports. */

import { messageOf, WorkerLostError } from '../../foundation/errors.ts'
import type { LostAttempt } from '../wire/messages.ts'
import type { DriverJob } from './agent-link.ts'
import type { EndReport } from './jobs/driver-jobs.ts'

/** The end of an attempt that was running on a lost node. */
export function lostReport(one: DriverJob, agent: string, reason: string): EndReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const text = one.isStarted
    ? `node ${agent} was lost while it ran task ${one.uid}: ${reason}`
    : `node ${agent} was lost, as others before it, and task ${one.uid} may have begun: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

/** The failed attempts among jobs that had begun on a lost node. */
export function toLostAttempts(
  begun: readonly DriverJob[],
  agent: string,
  reason: string,
): readonly LostAttempt[] {
  const lost: LostAttempt[] = []
  for (const one of begun) {
    const report = lostReport(one, agent, reason)
    // The session counts attempts of the whole group, not of its members.
    if (report.kind !== 'fail' || one.group !== null) continue
    lost.push({ uid: one.uid, attempt: one.wireAttempt, message: messageOf(report.error) })
  }
  return lost
}
