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

/** Fails tasks that no agent could run, once each has waited for as long as it may. */
export class NoAgentWatch {
  readonly #jobs: DriverJobs
  readonly #url: string
  readonly #timeoutMs: number
  /** By what is asked for: since when nobody has it, and since when the first task waits for it. */
  readonly #waits = new Map<string, { readonly sinceMs: number; readonly firstMs: number }>()

  constructor(jobs: DriverJobs, url: string, timeoutSeconds: number) {
    this.#jobs = jobs
    this.#url = url
    this.#timeoutMs = timeoutSeconds * 1000
  }

  failUnplaceable(nowMs: number): void {
    const names = new Set(this.#jobs.placement.unplaceable())
    for (const name of this.#waits.keys()) if (!names.has(name)) this.#waits.delete(name)
    for (const name of names) {
      const { sinceMs, firstMs } = this.#waits.get(name) ?? { sinceMs: nowMs, firstMs: nowMs }
      const isDue = nowMs - firstMs >= this.#timeoutMs
      const nextMs = isDue ? this.#failDue(name, sinceMs, nowMs) : firstMs
      this.#waits.set(name, { sinceMs, firstMs: nextMs })
    }
  }

  /** Returns since when the first of those waits that go on waiting. */
  #failDue(name: string, sinceMs: number, nowMs: number): number {
    const { placement } = this.#jobs
    const left: DriverJob[] = []
    let firstMs = nowMs
    for (const one of placement.takeUnplaceable(name)) {
      const fromMs = Math.max(sinceMs, one.sinceMs)
      if (nowMs - fromMs >= this.#timeoutMs) {
        this.#jobs.end(one, { kind: 'fail', error: this.#errorOf(one) }, null)
      } else {
        left.push(one)
        firstMs = Math.min(firstMs, fromMs)
      }
    }
    placement.putBack(left)
    return firstMs
  }

  #errorOf({ spec }: DriverJob): BackendError {
    const wanted = JSON.stringify(spec.resources)
    const text = `no agent with ${wanted} came to ${this.#url} within ${this.#timeoutMs / 1000} s`
    return new BackendError(text, {
      code: 'NoAgentError',
      hint: 'Start one: tutti agent --connect URL --token-file FILE',
    })
  }
}
