/** A job of the session on its way through the cluster, and those that are placed together. */

import type { ContinuedAttempt, Job } from '../../../backends/backend.ts'
import type { Indexed } from '../../../runtime/indexed-set.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { NumberedJob } from '../../wire/job-batches.ts'
import type { AgentLink } from '../agent-link.ts'
import type { JobGroup } from '../placement/job-group.ts'
import type { Exclusion } from '../placement/placement-node.ts'
import type { PlacedJob } from '../placement/shapes.ts'

/** Jobs that are placed all at once. */
export interface DriverJobGroup extends JobGroup<DriverJob> {
  readonly jobs: DriverJob[]
  /** How many have no node. */
  unplaced: number
  /** Called once, with the node of each job. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** A job of the session on its way through the cluster. */
export class DriverJob implements NumberedJob, PlacedJob, Indexed {
  setIndex = -1
  readonly index: number
  readonly job: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly avoid: string | null
  /** Agents that do not allow it, as far as is known. Not changed while it waits. */
  excluded: Exclusion | null = null
  /** Begins with others; not placed again alone. */
  readonly group: DriverJobGroup | null
  /**
   * The attempt's number at the agents. It goes on from an earlier start of the session, whose
   * attempts this start does not count.
   */
  wireAttempt: number
  /** What the session has to know of attempts that an earlier start has made. */
  continued: ContinuedAttempt | null = null
  /** Where it is; `null` while it waits. */
  agent: AgentLink | null = null
  /** When the session has submitted it. */
  readonly addedMs: number
  /** When it was sent; while it waits, since when. */
  sinceMs: number
  /** When its attempt began, by the clock of this machine. */
  startedMs: number | null = null
  /** The same by the clock of its agent. */
  beganMs: number | null = null
  /** The time of its latest event. */
  toldSeconds = 0
  cancelReason: string | null = null
  /** Nodes that were lost while it may have been running there, untold. */
  moves = 0
  /** Its end has come: it is being reported, or its value is on the way. */
  isEnding = false

  constructor(
    job: Job,
    index: number,
    sequence: number,
    wireAttempt: number,
    avoid: string | null,
    sinceMs: number,
    group: DriverJobGroup | null = null,
  ) {
    this.job = job
    this.index = index
    this.addedMs = sinceMs
    this.sinceMs = sinceMs
    this.spec = job.spec
    this.sequence = sequence
    this.wireAttempt = wireAttempt
    this.avoid = avoid
    this.group = group
  }

  get isStarted(): boolean {
    return this.startedMs !== null
  }

  get isRetry(): boolean {
    return this.job.attempt > 1
  }

  get uid(): string {
    return this.job.uid
  }
}
