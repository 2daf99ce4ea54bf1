/** The extended interface of the cluster backend, for backends that are built on top of it. */

import type { Connection, Job } from '../../../backends/backend.ts'
import type { BackendError } from '../../../foundation/errors.ts'
import type { ResourceRequest } from '../../../tasks/resources.ts'
import type { GroupOptions } from '../../protocol/driver/remote-agent.ts'

/** Settings from the backend that is built on `ClusterBackend`, besides the options of users. */
export interface ClusterSettings {
  /**
   * How long tasks can still run, on `node` or, if it is omitted, on any node. May be `Infinity`.
   */
  readonly secondsLeft: (node?: string) => number
  /**
   * Boundaries in seconds. Tasks whose estimated run times have a boundary between them wait in
   * separate queues.
   */
  readonly horizons: readonly number[]
  readonly modules: 'shared' | 'bundle'
  /**
   * Returns why no suitable agent will ever join; `null` if one may still join. If there is no such
   * function, tasks wait for `agentTimeoutSeconds`.
   */
  readonly explainNoAgent: ((resources: ResourceRequest) => BackendError | null) | null
  /** Whether the tasks are services, which may use the resources that are held for them. */
  readonly isForServices: boolean
}

export interface ClusterConnection extends Connection {
  /**
   * Submits jobs with equal requests. They begin together or not at all. If a node is lost before
   * its job has begun, the job ends as if it had been running.
   */
  submitTogether(jobs: readonly Job[], options: GroupOptions): void
}
