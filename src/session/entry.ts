/** What the ledger knows of a task that has not ended. */

import type { AnyTask, Connection, Job } from '../backends/backend.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Life } from '../tasks/lifecycle.ts'

export interface Entry {
  readonly task: AnyTask
  life: Life
  backend: string
  connection: Connection | null
  /** The backend has its job, so that only the backend can end it. */
  isWithBackend: boolean
  /** The attempt under way; reports of any other are late. */
  job: Job
  attempt: number
  workersLost: number
  workerId: string | null
  nodeId: string | null
  /** Binary path, function name or model name; a model may be known only after routing. */
  executable: string
  /** The attributes that all its events share, once they were needed. */
  attributes: JsonObject | null
  /** Set once somebody asked for its end. */
  cancelReason: string | null
  /** Called once when it has ended. */
  waiters: Set<() => void> | null
}
