/** A backend listener for tests. */

import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import { Waiters } from './waiters.ts'

/** Records every report of a backend, and lets a test wait for reports. */
export class RecordingListener implements BackendListener {
  readonly notices: Notice[] = []
  readonly #reports = new Map<Job, TaskReport[]>()
  readonly #waiters = new Waiters()

  report(job: Job, report: TaskReport): void {
    const known = this.#reports.get(job)
    if (known === undefined) this.#reports.set(job, [report])
    else known.push(report)
    this.#waiters.wake()
  }

  notice(notice: Notice): void {
    this.notices.push(notice)
    this.#waiters.wake()
  }

  /** The jobs that have at least one report. */
  get jobs(): readonly Job[] {
    return [...this.#reports.keys()]
  }

  /** The reports about a job, in order. */
  of(job: Job): readonly TaskReport[] {
    return this.#reports.get(job) ?? []
  }

  /** The kinds of a job's reports in order, such as `start` and `complete`. */
  kindsOf(job: Job): readonly string[] {
    return this.of(job).map(({ kind }) => kind)
  }

  /** Whether a report other than `start` has arrived for the job. */
  hasEnded(job: Job): boolean {
    return this.of(job).some(({ kind }) => kind !== 'start')
  }

  /** Resolves when every job was reported as ended. */
  ended(jobs: readonly Job[]): Promise<void> {
    return this.until(() => jobs.every((job) => this.hasEnded(job)))
  }

  /** Resolves when the first report about the job has arrived. */
  started(job: Job): Promise<void> {
    return this.until(() => this.of(job).length > 0)
  }

  /** Resolves as soon as the condition holds. Checks it now and after every report or notice. */
  until(isMet: () => boolean): Promise<void> {
    return this.#waiters.until(isMet)
  }
}
