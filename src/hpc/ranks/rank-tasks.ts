/** The MPI programs of a session. Hides the jobs of their ranks from the session. */

import type { BackendListener, Job, Notice, TaskReport } from '../../backends/backend.ts'
import type { ClusterConnection } from '../../cluster/driver/cluster-connection.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { Allocation } from '../allocation.ts'
import { RankJob } from './rank-job.ts'
import { RankTask } from './rank-task.ts'
import type { RankTurns } from './rank-turns.ts'

export interface RankTasksOptions {
  readonly listener: BackendListener
  readonly allocation: Pick<Allocation, 'startRanks'>
  readonly clock: Clock
  /** Shared by all sessions of the allocation. */
  readonly turns: RankTurns
}

/** The maximum number of tasks whose failed nodes are remembered. */
const maxAvoided = 10_000

export const hasRanks = ({ spec }: Job): boolean => spec.resources.ranks > 1

export class RankTasks implements BackendListener {
  readonly #options: RankTasksOptions
  readonly #tasks = new Map<Job, RankTask>()
  /** The node where the last attempt of each task failed. */
  readonly #failedOn = new Map<string, string>()

  constructor(options: RankTasksOptions) {
    this.#options = options
  }

  /**
   * Keeps the order of the list, so that later jobs do not take nodes that an MPI task waits for.
   */
  submit(jobs: readonly Job[], connection: ClusterConnection): void {
    if (!jobs.some(hasRanks)) return connection.submit(jobs)
    let from = 0
    for (const [at, job] of jobs.entries()) {
      if (!hasRanks(job)) continue
      if (from < at) connection.submit(jobs.slice(from, at))
      this.#submitRanks(job, connection)
      from = at + 1
    }
    if (from < jobs.length) connection.submit(jobs.slice(from))
  }

  cancel(job: Job, reason: string): void {
    this.#tasks.get(job)?.cancel(reason)
  }

  /** Cancels all tasks and waits until they have ended. */
  async release(reason: string): Promise<void> {
    const tasks = [...this.#tasks.values()]
    for (const task of tasks) task.cancel(reason)
    await Promise.all(tasks.map((task) => task.ended))
  }

  report(job: Job, report: TaskReport): void {
    if (job instanceof RankJob) job.task.take(job, report)
    else this.#options.listener.report(job, report)
  }

  /** Replaces the uids of ranks in notices by the uids of their tasks. */
  notice(notice: Notice): void {
    const { listener } = this.#options
    if (notice.kind === 'node-left' && notice.lost !== undefined) {
      const tasks = toTasks(notice.lost.tasks)
      return listener.notice({ ...notice, lost: { ...notice.lost, tasks } })
    }
    if (notice.kind !== 'event') return listener.notice(notice)
    const { taskId, fields } = notice
    const own = fields as { readonly tasks?: unknown }
    const tasks = Array.isArray(own.tasks) ? { tasks: toTasks(own.tasks as string[]) } : {}
    listener.notice({
      ...notice,
      fields: { ...fields, ...tasks },
      taskId: taskId === null ? null : toTask(taskId),
    })
  }

  #submitRanks(job: Job, connection: ClusterConnection): void {
    const { listener, allocation, clock, turns } = this.#options
    const { spec, uid } = job
    if (spec.kind !== 'program') throw new TypeError(`task ${uid} is not an executable`)
    const task = new RankTask({
      job,
      spec,
      allocation,
      connection,
      clock,
      workers: turns.workers,
      avoid: this.#failedOn.get(uid) ?? null,
      report: (report) => listener.report(job, report),
      onBegun: () => turns.leave(),
      onEnd: (failedOn) => {
        this.#tasks.delete(job)
        if (this.#failedOn.size >= maxAvoided) this.#failedOn.clear()
        if (failedOn === null) this.#failedOn.delete(uid)
        else this.#failedOn.set(uid, failedOn)
      },
    })
    this.#tasks.set(job, task)
    turns.enter(this, () => task.start())
  }
}

/** The uid of a rank begins with the uid of its task. */
const toTask = (uid: string): string => uid.replace(/#[0-9a-f]{24}\.\d+$/, '')

const toTasks = (uids: readonly string[]): string[] => [...new Set(uids.map(toTask))]
