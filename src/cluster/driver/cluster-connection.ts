/** The extended interface of the cluster backend, for backends that are built on top of it. */

import type { Connection, Job } from '../../backends/backend.ts'
import type { BackendError } from '../../foundation/errors.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'

/** Settings that the backend on top provides, in addition to the options of `ClusterBackend`. */
export interface ClusterSettings {
  /** Seconds until nothing can run on this node, or on any node; `Infinity` if unlimited. */
  readonly secondsLeft: (node?: string) => number
  /** Tasks that run longer than one of these values are queued separately from shorter ones. */
  readonly horizons: readonly number[]
  /** How agents get the modules of functions. */
  readonly modules: 'shared' | 'bundle'
  /**
   * Returns why no agent will join that could run such tasks; `null` while one may. If the function
   * itself is `null`, this is unknown, and tasks wait for `agentTimeoutSeconds`.
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
   * Submits jobs with equal resources that begin together or not at all. If a job's node is lost
   * before the job has begun, the job ends as if it had been running. `recorded` excludes these
   * jobs.
   */
  submitTogether(jobs: readonly Job[], options: GroupOptions): void
}
