/** The jobs that a local backend holds, from submission to their last report. */

import { IndexedSet, type Indexed } from '../../runtime/indexed-set.ts'
import { defaultResources, isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { BackendListener, ConnectedSession, Job } from '../backend.ts'
import { TaggedJob } from '../job-tag.ts'
import type { WaitingJob } from './job-queue.ts'

/** Which executor runs a job. */
export type ExecutorKind = 'functions' | 'programs' | 'closures'

/** The submitter of a job. */
export interface Client {
  readonly listener: BackendListener
  readonly session: ConnectedSession
}

/** Closures run on the event loop and hold no core. */
const nothing: ResourceRequest = Object.freeze({ ...defaultResources, cores: 0 })

/**
 * Passed to executors in place of the submitted job. It gives access to the client without a
 * lookup, whether the submitted job is a session's own object or a copy.
 */
export class ScheduledJob implements Job, WaitingJob, Indexed {
  setIndex = -1
  isWaiting = true
  /** The job as the client submitted it. */
  readonly original: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly executor: ExecutorKind
  readonly client: Client
  /** Whether the job asks for one core and nothing else. Such jobs may share a batch. */
  readonly isDefault: boolean

  constructor(original: Job, sequence: number, executor: ExecutorKind, client: Client) {
    this.original = original
    this.spec = original.spec
    this.sequence = sequence
    this.executor = executor
    this.client = client
    this.isDefault = isDefaultRequest(original.spec.resources)
  }

  get sessionId(): string {
    return this.original.sessionId
  }

  get uid(): string {
    return this.original.uid
  }

  get attempt(): number {
    return this.original.attempt
  }

  get isRetry(): boolean {
    return this.original.isRetry === true
  }

  /** Whether the job holds no resources while it runs. */
  get isFree(): boolean {
    return this.isDefault && this.executor === 'closures'
  }

  get request(): ResourceRequest {
    return this.isFree ? nothing : this.spec.resources
  }
}

export class ScheduledJobs {
  readonly #all = new IndexedSet<ScheduledJob>()
  /** Jobs by the submitted object, to find untagged ones. Created by the first such lookup. */
  #untagged: Map<Job, ScheduledJob> | null = null

  add(scheduled: ScheduledJob): void {
    this.#all.add(scheduled)
    if (!TaggedJob.setTag(scheduled.original, scheduled)) {
      this.#untagged?.set(scheduled.original, scheduled)
    }
  }

  has(scheduled: ScheduledJob): boolean {
    return this.#all.has(scheduled)
  }

  /** Finds a job by the object that was submitted; `null` if it is not here. */
  find(original: Job): ScheduledJob | null {
    const tag = TaggedJob.tagOf(original)
    if (tag instanceof ScheduledJob && this.#all.has(tag)) return tag
    this.#untagged ??= new Map(this.#all.toArray().map((one) => [one.original, one]))
    return this.#untagged.get(original) ?? null
  }

  delete(scheduled: ScheduledJob): void {
    this.#all.delete(scheduled)
    TaggedJob.removeTag(scheduled.original, scheduled)
    this.#untagged?.delete(scheduled.original)
    if (this.#all.size === 0) this.#untagged = null
  }

  /** All jobs in the order of arrival, as a new array. */
  toArray(): ScheduledJob[] {
    return this.#all.toArray()
  }
}
