/** What a backend on top of the cluster backend can ask of it, beyond what a session can. */

import type { Connection, Job } from '../../backends/backend.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'

/** What the backend on top knows of the cluster beyond the options of `ClusterBackend`. */
export interface ClusterSettings {
  /** Seconds until nothing can run on this node, or on any node; `Infinity` if no end is known. */
  readonly secondsLeft: (node?: string) => number
  /** Tasks that run longer than one of these do not wait in one queue with shorter ones. */
  readonly horizons: readonly number[]
  /** How agents get the modules of functions. */
  readonly modules: 'shared' | 'bundle'
  /**
   * Why no agent will join that could run such tasks; `null` while one may. If the function is
   * `null`, nothing is known, and tasks wait for `agentTimeoutSeconds`.
   */
  readonly whyNone: ((resources: ResourceRequest) => BackendError | null) | null
  /** Whether the session's jobs are services, so that held resources are available to them. */
  readonly isOfServices: boolean
}

/** How the jobs of a group are placed. */
export interface GroupOptions {
  /** The number of jobs that each node gets; `null` for any number. */
  readonly perNode: number | null
  /** A node that should get none of the jobs if others are available. */
  readonly avoid: string | null
  /** The only node that may get the jobs. Default: any. */
  readonly node?: string
  /** Called once, with the node of each job, before any of them is reported. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

export interface ClusterConnection extends Connection {
  /**
   * Submits jobs with equal resources that begin together or not at all. A job whose node is lost
   * before it began ends like one whose node was lost while it ran. `recorded` excludes these jobs.
   */
  submitTogether(jobs: readonly Job[], options: GroupOptions): void
}
