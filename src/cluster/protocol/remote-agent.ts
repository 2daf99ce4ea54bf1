/** An agent as the driver of a session sees it, and the jobs of the session. */

import type { ContinuedAttempt, Job } from '../../backends/backend.ts'
import { type Indexed, IndexedSet } from '../../runtime/indexed-set.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { NumberedJob } from '../wire/job-batches.ts'
import type { Announcement, AgentStart, JobReference } from '../wire/messages.ts'
import { AgentResults } from './agent-results.ts'
import type { ClockOffset } from './clock-offset.ts'
import type { JobGroup } from './placement/job-group.ts'
import type { Exclusion } from './placement/placement-node.ts'
import type { PlacedJob } from './placement/shapes.ts'

/** What an agent announces about itself. Later announcements replace earlier ones. */
export interface AnnouncedAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
}

/** A start of an agent, from when the driver attaches to it until it is lost. */
export class RemoteAgent implements AgentStart {
  readonly name: string
  readonly epoch: number
  readonly jobs = new IndexedSet<DriverJob>()
  readonly results = new AgentResults()
  isAttached = false
  /** Whether all results that the agent had for an earlier start of the driver have arrived. */
  hasReportedEarlier = false
  isLost = false
  /** The uids of tasks that were running when the agent closed. */
  readonly abandoned: string[] = []
  readonly #announced: AnnouncedAgent
  readonly #onCancel: () => void
  #cancels = new Map<string, JobReference[]>()

  /** `onCancel` is called when there are cancels to send, after there were none. */
  constructor(announced: AnnouncedAgent, onCancel: () => void) {
    this.#announced = announced
    this.#onCancel = onCancel
    this.name = announced.announcement.name
    this.epoch = announced.announcement.epoch
  }

  get announcement(): Announcement {
    return this.#announced.announcement
  }

  get offset(): ClockOffset {
    return this.#announced.offset
  }

  /** Cancels a job. All cancels of a turn of the event loop are sent together. */
  cancel(job: JobReference, reason: string): void {
    const jobs = this.#cancels.get(reason)
    if (jobs === undefined) this.#cancels.set(reason, [job])
    else jobs.push(job)
    if (this.#cancels.size === 1 && jobs === undefined) this.#onCancel()
  }

  /** Returns the cancels that were not sent yet, by reason. */
  takeCancels(): ReadonlyMap<string, readonly JobReference[]> {
    const cancels = this.#cancels
    this.#cancels = new Map()
    return cancels
  }

  /** Returns up to `max` jobs that were sent before `beforeMs` and have not begun. */
  findUnbegun(max: number, beforeMs: number): readonly JobReference[] {
    return this.jobs
      .toArray()
      .filter(({ isStarted, sinceMs, group }) => !isStarted && sinceMs < beforeMs && !group)
      .slice(-max)
      .map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
  }
}

export interface GroupOptions {
  /** The number of jobs that each node gets; `null` for any number. */
  readonly jobsPerNode: number | null
  /** A node that gets none of the jobs if other nodes are available. */
  readonly avoidedNode: string | null
  /** The only node that may get the jobs. Default: any. */
  readonly node?: string
  /** Called once, with the node of each job, before a report about any of the jobs. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** Jobs that are placed together or not at all. */
export interface DriverJobGroup extends JobGroup<DriverJob> {
  readonly jobs: DriverJob[]
  unplacedCount: number
  /** Called once, with the names of the nodes in the order of the jobs. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** A job of the session, from submission to completion. */
export class DriverJob implements NumberedJob, PlacedJob, Indexed {
  setIndex = -1
  readonly index: number
  readonly job: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly avoidedNode: string | null
  /** The agents that are known to refuse the job. Does not change while the job waits. */
  exclusion: Exclusion | null = null
  /** The jobs that must begin together with this one. None of them is placed again alone. */
  readonly group: DriverJobGroup | null
  /** The attempt number for agents. It also counts attempts of the driver's earlier starts. */
  wireAttempt: number
  continued: ContinuedAttempt | null = null
  agent: RemoteAgent | null = null
  readonly submittedMs: number
  /** When the job was sent to its agent. Without an agent, when it began to wait. */
  sinceMs: number
  /** When the attempt began, by the clock of this machine; `null` if it has not begun. */
  startedMs: number | null = null
  /** When the attempt began, by the clock of its agent. */
  beganMs: number | null = null
  latestSeconds = 0
  cancelReason: string | null = null
  /** The number of nodes that were lost while they had the job. */
  moves = 0
  /** Whether the result is known. It is being reported, or its value is being read. */
  isEnding = false

  constructor(
    job: Job,
    index: number,
    sequence: number,
    wireAttempt: number,
    avoidedNode: string | null,
    sinceMs: number,
    group: DriverJobGroup | null,
  ) {
    this.job = job
    this.index = index
    this.submittedMs = sinceMs
    this.sinceMs = sinceMs
    this.spec = job.spec
    this.sequence = sequence
    this.wireAttempt = wireAttempt
    this.avoidedNode = avoidedNode
    this.group = group
  }

  get isStarted(): boolean {
    return this.startedMs !== null
  }

  get isRetry(): boolean {
    return this.job.isRetry === true
  }

  get uid(): string {
    return this.job.uid
  }
}
