/** What a backend on top of the cluster can ask of it, beyond what a session can. */

import type { Connection, Job } from '../../backends/backend.ts'

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
