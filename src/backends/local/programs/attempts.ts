/** The attempts that a launcher pool has taken over and not yet ended. Decides nothing. */

import type { ProgramSpec } from '../../../tasks/spec.ts'
import type { Job } from '../../backend.ts'
import type { Batch } from '../executor.ts'
import type { Launcher } from './launcher-fleet.ts'

/** One attempt at a task, from its assignment to its last report. */
export interface Attempt {
  /** Never used twice. */
  readonly id: number
  readonly job: Job
  readonly batch: Batch
  readonly spec: ProgramSpec
  /** Who was asked to start it. */
  launcher: Launcher | null
  /** 0 until it was told to have begun. */
  pid: number
  cancelReason: string | null
}

export class Attempts {
  readonly #byId = new Map<number, Attempt>()
  readonly #byJob = new Map<Job, Attempt>()
  readonly #open = new Map<Batch, number>()
  #lastId = 0

  get size(): number {
    return this.#byId.size
  }

  add(batch: Batch): Attempt[] {
    this.#open.set(batch, batch.jobs.length)
    return batch.jobs.map((job) => {
      const spec = expectProgram(job)
      const id = ++this.#lastId
      const attempt = { id, job, batch, spec, launcher: null, pid: 0, cancelReason: null }
      this.#byId.set(id, attempt)
      this.#byJob.set(job, attempt)
      return attempt
    })
  }

  get(id: number): Attempt | undefined {
    return this.#byId.get(id)
  }

  find(job: Job): Attempt | undefined {
    return this.#byJob.get(job)
  }

  all(): Attempt[] {
    return [...this.#byId.values()]
  }

  remove({ id, job }: Attempt): void {
    this.#byId.delete(id)
    this.#byJob.delete(job)
  }

  /** One job less in the batch; `true` for its last. */
  isLastOf(batch: Batch): boolean {
    const open = (this.#open.get(batch) ?? 1) - 1
    if (open === 0) this.#open.delete(batch)
    else this.#open.set(batch, open)
    return open === 0
  }
}

function expectProgram({ uid, spec }: Job): ProgramSpec {
  if (spec.kind === 'program') return spec
  throw new TypeError(`task ${uid} is not an executable`)
}
