/** What a backend on top of the cluster can ask of it, beyond what a session can. */

import type { Connection, Job } from '../../backends/backend.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'

/** What it knows of the cluster beyond the options of that. */
export interface ClusterSettings {
  /** Until nothing runs any more, on this node or on any; `Infinity` without an end. */
  readonly secondsLeft: (node?: string) => number
  /** Tasks that run for more and for less than one of these do not wait for the same nodes. */
  readonly horizons: readonly number[]
  /** How agents get the modules of functions. */
  readonly modules: 'shared' | 'bundle'
  /**
   * Why no agent will come that could run such tasks; `null` while one may. Where nobody knows,
   * tasks wait for `agentTimeoutSeconds`.
   */
  readonly whyNone: ((resources: ResourceRequest) => BackendError | null) | null
  /** Its jobs are what holds resources: none are kept from them. */
  readonly isOfServices: boolean
}

/** How the jobs of a group are placed. */
export interface GroupOptions {
  /** How many each node gets; `null` for any number. */
  readonly perNode: number | null
  /** A node that should get none of them while there are others. */
  readonly avoid: string | null
  /** The only node that may get them. Default: any. */
  readonly node?: string
  /** Called once, with the node of each job, before any of them is reported. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

export interface ClusterConnection extends Connection {
  /**
   * Jobs that begin all at once or not at all, with equal resources. One whose node is lost before
   * it began ends as one whose node was lost while it ran. `recorded` does not count them.
   */
  submitTogether(jobs: readonly Job[], options: GroupOptions): void
}
