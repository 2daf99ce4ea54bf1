/** The jobs that a local backend holds, from submission to their last report. */

import { IndexedSet, type Indexed } from '../../runtime/indexed-set.ts'
import { defaultResources, isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { BackendListener, ConnectedSession, Job } from '../backend.ts'
import { TaggedJob } from '../job-tag.ts'
import type { WaitingJob } from './job-queue.ts'

export type ExecutorKind = 'functions' | 'programs' | 'closures'

export interface Client {
  readonly listener: BackendListener
  readonly session: ConnectedSession
}

/**
 * The resources of a closure with the default request. It runs on the event loop and holds no core.
 */
const noResources: ResourceRequest = Object.freeze({ ...defaultResources, cores: 0 })

/**
 * The form of a job that executors get. It replaces the submitted job, so that the client is known
 * without a lookup.
 */
export class ScheduledJob implements Job, WaitingJob, Indexed {
  setIndex = -1
  isWaiting = true
  readonly original: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly executor: ExecutorKind
  readonly client: Client
  /** Whether the job requests only one core, so that it may share a batch with others. */
  readonly hasDefaultRequest: boolean

  constructor(original: Job, sequence: number, executor: ExecutorKind, client: Client) {
    this.original = original
    this.spec = original.spec
    this.sequence = sequence
    this.executor = executor
    this.client = client
    this.hasDefaultRequest = isDefaultRequest(original.spec.resources)
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

  get needsNoResources(): boolean {
    return this.hasDefaultRequest && this.executor === 'closures'
  }

  get request(): ResourceRequest {
    return this.needsNoResources ? noResources : this.spec.resources
  }
}

export class ScheduledJobs {
  readonly #all = new IndexedSet<ScheduledJob>()

  add(scheduled: ScheduledJob): void {
    this.#all.add(scheduled)
    TaggedJob.setTag(scheduled.original, scheduled)
  }

  has(scheduled: ScheduledJob): boolean {
    return this.#all.has(scheduled)
  }

  /** Returns `null` if the job has ended or was never submitted here. */
  find(original: Job): ScheduledJob | null {
    const tag = TaggedJob.tagOf(original)
    if (tag instanceof ScheduledJob && this.#all.has(tag)) return tag
    // Jobs that third parties create have no tag.
    return this.#all.toArray().find((one) => one.original === original) ?? null
  }

  delete(scheduled: ScheduledJob): void {
    this.#all.delete(scheduled)
    TaggedJob.removeTag(scheduled.original, scheduled)
  }

  toArray(): ScheduledJob[] {
    return this.#all.toArray()
  }
}
