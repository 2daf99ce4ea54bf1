/** An agent as the driver of a session sees it, and the jobs of the session. */

import type { ContinuedAttempt, Job } from '../../../backends/backend.ts'
import { type Indexed, IndexedSet } from '../../../runtime/indexed-set.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { NumberedJob } from '../../wire/job-batches.ts'
import type {
  AgentStart,
  Announcement,
  JobReference,
  Offer,
  WireEvent,
} from '../../wire/messages.ts'
import { AgentResults } from './agent-results.ts'
import type { ClockOffset } from './clock-offset.ts'
import type { Link } from '../link.ts'
import type { JobGroup } from '../placement/job-group.ts'
import type { Exclusion } from '../placement/placement-node.ts'
import type { PlacedJob } from '../placement/shapes.ts'

/** What an agent announces about itself. Later announcements replace earlier ones. */
export interface AnnouncedAgent {
  readonly announcement: Announcement
  readonly offset: ClockOffset
  readonly lastHeardMs: number
}

/**
 * `new`: never attached. `attaching`: an attach was requested. `resending`: the agent has answered
 * and repeats what was not applied. `attached`: everything of earlier links has arrived. `lost`:
 * its last results are being read.
 */
export type AgentState = 'new' | 'attaching' | 'resending' | 'attached' | 'lost'

/** A start of an agent, from when it joins until it is lost. */
export class RemoteAgent implements AgentStart {
  readonly known: AnnouncedAgent
  readonly name: string
  readonly start: number
  readonly jobs = new IndexedSet<DriverJob>()
  state: AgentState = 'new'
  link: Link | null = null
  /** The last link that was attached, and the last message of it that was applied. */
  applied = { link: 0, number: 0 }
  /** Numbered messages that arrived before the answer to the attach request. */
  early: (() => void)[] = []
  /** How many messages of the link repeat earlier ones. */
  resent = 0
  /** The agent's part of the session; 0 before the first answer. */
  use = 0
  readonly results = new AgentResults()
  offer: Offer = { cores: 0, gpus: 0, memoryMb: 0, ahead: 0 }
  /** Whether the placement has the agent as a node. */
  isPlaced = false
  /** Whether the record names the agent, so that a returned driver would miss it. */
  isRecorded = false
  /** Jobs that the agent did not list when it answered. Their results may be among the resent. */
  unlisted: DriverJob[] = []
  /** The uids of tasks that were running when the agent closed. */
  readonly abandoned: string[] = []
  /** Why the agent is lost, if it is. */
  lossReason = ''
  readonly #onCancel: () => void
  #cancels = new Map<string, JobReference[]>()

  /** `onCancel` is called when there are cancels to send, after there were none. */
  constructor(known: AnnouncedAgent, onCancel: () => void) {
    this.known = known
    this.#onCancel = onCancel
    this.name = known.announcement.name
    this.start = known.announcement.start
  }

  get announcement(): Announcement {
    return this.known.announcement
  }

  get offset(): ClockOffset {
    return this.known.offset
  }

  /** Whether everything that the agent held for earlier starts of the driver is known. */
  get hasReportedEarlier(): boolean {
    return this.isPlaced
  }

  cancel(job: JobReference, reason: string): void {
    const jobs = this.#cancels.get(reason)
    if (jobs === undefined) this.#cancels.set(reason, [job])
    else jobs.push(job)
    if (jobs === undefined && this.#cancels.size === 1) this.#onCancel()
  }

  /** Returns the cancels that were not sent yet, by reason. */
  takeCancels(): ReadonlyMap<string, readonly JobReference[]> {
    const cancels = this.#cancels
    if (cancels.size > 0) this.#cancels = new Map()
    return cancels
  }

  /** Returns up to `max` jobs that were sent before `beforeMs` and have not begun. */
  findUnbegun(max: number, beforeMs: number): readonly JobReference[] {
    return this.jobs
      .toArray()
      .filter(({ isStarted, sinceMs, group }) => !isStarted && sinceMs < beforeMs && !group)
      .slice(-max)
      .map(toReference)
  }
}

/** How messages to agents name an attempt. */
export const toReference = ({ uid, wireAttempt, driverStart }: DriverJob): JobReference => [
  uid,
  wireAttempt,
  driverStart,
]

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
  /** The attempt number for agents. It also counts moves, and is unique with `driverStart`. */
  wireAttempt: number
  /** The start of the driver that has sent the attempt. An earlier one if it was continued. */
  driverStart = 0
  /** Whether data of the job is being stored, before the job can be sent to its agent. */
  isUnsent = false
  continued: ContinuedAttempt | null = null
  agent: RemoteAgent | null = null
  readonly submittedMs: number
  /** When the job was sent to its agent. Without an agent, when it began to wait. */
  sinceMs: number
  /** When the attempt began, by the clock of this machine; `null` if it has not begun. */
  startedMs: number | null = null
  /** When the attempt began, by the clock of its agent. */
  beganMs: number | null = null
  /** Events that arrived before the start. Its report was lost, and the result repeats it. */
  earlyEvents: WireEvent[] | null = null
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
