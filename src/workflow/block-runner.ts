/**
 * Runs the bodies of blocks on this process's event loop. Their number is not limited, because a
 * block that waits for its tasks must not occupy a slot that they need.
 */

import { hostname } from 'node:os'
import type { BackendListener, Connection, Job } from '../backends/backend.ts'
import { ClosureRuns } from '../backends/closure-runs.ts'
import { Attempt } from '../core/entry.ts'
import type { Clock } from '../foundation/clock.ts'
import { blockBackend } from '../foundation/ids.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'

export interface BlockRunnerParts {
  readonly clock: Clock
  readonly listener: BackendListener
  /** Called at the end of every attempt, before the listener. */
  readonly onAttemptEnded: (uid: string, hasSucceeded: boolean) => void
}

export class BlockRunner implements Connection {
  readonly #runs: ClosureRuns<null>

  constructor({ clock, listener, onAttemptEnded }: BlockRunnerParts) {
    const nodeId = hostname()
    this.#runs = new ClosureRuns({
      nodeId,
      workerId: `${nodeId}/${blockBackend}/main`,
      clock,
      budget: new TurnBudget(clock),
      noun: 'block',
      closureOf: (job) => Attempt.closureOf(job),
      report: (job, report) => {
        if (report.kind !== 'start') onAttemptEnded(job.uid, report.kind === 'complete')
        listener.report(job, report)
      },
      notice: (notice) => listener.notice(notice),
      resultDropped: () => listener.notice({ kind: 'late-result' }),
    })
  }

  submit(jobs: readonly Job[]): void {
    for (const job of jobs) this.#runs.add(job, null)
  }

  cancel(job: Job, reason: string): void {
    this.#runs.cancel(job, reason)
  }

  release(reason: string): Promise<void> {
    this.#runs.cancelAll(reason)
    return Promise.resolve()
  }
}
