/** Ends that no agent tells: the node was lost, or none came. */

import { BackendError, WorkerLostError } from '../../foundation/errors.ts'
import type { DriverJob } from './agent-link.ts'
import type { DriverJobs, EndReport } from './driver-jobs.ts'

/** Of a task that was running on a lost node. */
export function lostReport(one: DriverJob, agent: string, reason: string): EndReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const text = `node ${agent} was lost while it ran task ${one.uid}: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

/** Fails tasks that no agent could run, once they have waited for as long as they may. */
export class NoAgentWatch {
  readonly #jobs: DriverJobs
  readonly #url: string
  readonly #timeoutSeconds: number
  #sinceMs: number | null = null

  constructor(jobs: DriverJobs, url: string, timeoutSeconds: number) {
    this.#jobs = jobs
    this.#url = url
    this.#timeoutSeconds = timeoutSeconds
  }

  failUnplaceable(nowMs: number): void {
    const { placement } = this.#jobs
    if (!placement.hasUnplaceable) {
      this.#sinceMs = null
      return
    }
    this.#sinceMs ??= nowMs
    if (nowMs - this.#sinceMs < this.#timeoutSeconds * 1000) return
    this.#sinceMs = null
    for (const one of placement.unplaceable()) {
      this.#jobs.end(one, { kind: 'fail', error: this.#errorOf(one) }, null)
    }
  }

  #errorOf({ spec }: DriverJob): BackendError {
    const wanted = JSON.stringify(spec.resources)
    const text = `no agent with ${wanted} came to ${this.#url} within ${this.#timeoutSeconds} s`
    return new BackendError(text, {
      code: 'NoAgentError',
      hint: 'Start one: tutti agent --connect URL --token-file FILE',
    })
  }
}
