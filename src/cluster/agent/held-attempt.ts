/** An attempt that an agent holds: it waits, or it is with the node's backend. */

import type { Job } from '../../backends/backend.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { HeldJob } from '../wire/messages.ts'

export class HeldAttempt implements Job {
  readonly sessionId: string
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec
  readonly sequence: number
  isWaiting = true
  /** It waits in the queue, and not for its module. */
  isQueued = false
  /** It was given to the node's backend, and holds its cores. */
  hasBegun = false
  beganMs: number | null = null
  workerId: string | null = null

  constructor(sessionId: string, uid: string, attempt: number, spec: TaskSpec, sequence: number) {
    this.sessionId = sessionId
    this.uid = uid
    this.attempt = attempt
    this.spec = spec
    this.sequence = sequence
  }

  get isRetry(): boolean {
    return this.attempt > 1
  }

  /** As a driver that attaches is told of it. */
  toHeldJob(): HeldJob {
    const { uid, attempt, beganMs, workerId } = this
    return { uid, attempt, beganMs, workerId }
  }
}
