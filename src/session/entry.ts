/** What the ledger knows of a task that has not ended. */

import type { AnyTask, Connection, Job, TaskReport } from '../backends/backend.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Life } from '../tasks/lifecycle.ts'
import type { Task } from '../tasks/task.ts'

/** What is known of a task when it is registered. */
export interface Registration {
  /** Binary path, function name or model name; what really runs may be known only later. */
  readonly executable: string
  /** The uids of the tasks that it waits for; told with TaskCreated alone. */
  readonly dependencies?: readonly string[]
  /** Told with all of its events. */
  readonly workflowId?: string | null
  /** What whoever registered it knows it by. */
  readonly owner?: object | null
}

/** How a task ends that never was with a backend. */
export type HeldEnd = Exclude<TaskReport, { readonly kind: 'start' }>

export interface Entry {
  /** What callers await; the attempt's job holds what is run. */
  readonly task: Task
  life: Life
  backend: string
  connection: Connection | null
  /** The backend has its job, so that only the backend can end it. */
  isWithBackend: boolean
  /** The attempt under way; reports of any other are late. `null` while the task is held. */
  job: Job | null
  attempt: number
  workersLost: number
  workerId: string | null
  nodeId: string | null
  /** Binary path, function name or model name; a model may be known only after routing. */
  executable: string
  readonly dependencies: readonly string[]
  readonly workflowId: string | null
  readonly owner: object | null
  /** The attributes that all its events share, once they were needed. */
  attributes: JsonObject | null
  /** Set once somebody asked for its end. */
  cancelReason: string | null
  /** Called once when it has ended. */
  waiters: Set<() => void> | null
}

const noDependencies: readonly string[] = Object.freeze([])

export function createEntry(
  task: Task,
  { executable, dependencies = noDependencies, workflowId = null, owner = null }: Registration,
  { life, job }: Pick<Entry, 'life' | 'job'>,
): Entry {
  return {
    task,
    life,
    backend: '',
    connection: null,
    isWithBackend: false,
    job,
    attempt: 1,
    workersLost: 0,
    workerId: null,
    nodeId: null,
    executable,
    dependencies,
    workflowId,
    owner,
    attributes: null,
    cancelReason: null,
    waiters: null,
  }
}

/** One attempt at `work`. */
export function createJob(task: AnyTask, attempt: number, workDir: string | null): Job {
  const { uid } = task
  return workDir === null ? { uid, task, attempt } : { uid, task, attempt, workDir }
}

/** What events call `executable`; a model may be known only after routing. */
export const executableOf = (task: AnyTask): string =>
  task.kind === 'ai' ? (task.model ?? '') : task.executable
