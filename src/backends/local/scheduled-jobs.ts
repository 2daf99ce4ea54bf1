/** The jobs of a backend, from their arrival to their end. */

import { IndexedSet, type Indexed } from '../../runtime/indexed-set.ts'
import { defaultResources, isDefaultRequest, type ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { BackendListener, ConnectedSession, Job } from '../backend.ts'
import { TaggedJob } from '../job-tag.ts'
import type { WaitingJob } from './job-queue.ts'

/** Which executor runs a job. */
export type ExecutorKind = 'functions' | 'programs' | 'closures'

/** Who submitted a job. */
export interface Client {
  readonly listener: BackendListener
  readonly session: ConnectedSession
}

/** Closures run on the event loop and hold no core. */
const nothing: ResourceRequest = Object.freeze({ ...defaultResources, cores: 0 })

/**
 * What executors get in place of a client's job: reports about it lead back to the client without a
 * lookup, whether the job is a session's own object or a copy.
 */
export class ScheduledJob implements Job, WaitingJob, Indexed {
  setIndex = -1
  isWaiting = true
  /** As it was submitted. */
  readonly original: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly executor: ExecutorKind
  readonly client: Client
  /** One core and nothing else: such jobs may share a batch. */
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

  /** It holds no resources while it runs. */
  get isFree(): boolean {
    return this.isDefault && this.executor === 'closures'
  }

  get request(): ResourceRequest {
    return this.isFree ? nothing : this.spec.resources
  }
}

export class ScheduledJobs {
  readonly #all = new IndexedSet<ScheduledJob>()
  /** By the job as it was submitted, if that has no tag. Created when it is needed first. */
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

  /** By the job as it was submitted; `null` for one that is not here. */
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

  /** A copy, in the order of arrival. */
  toArray(): ScheduledJob[] {
    return this.#all.toArray()
  }
}
