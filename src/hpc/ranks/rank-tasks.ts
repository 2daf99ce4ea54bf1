/**
 * Runs the MPI programs of a session, and hides the jobs of the ranks from the session. Refuses
 * programs that an allocation can never run.
 */

import type { BackendListener, Job, NodeCapacity, Notice, Refusal } from '../../backends/backend.ts'
import type { TaskReport } from '../../backends/backend.ts'
import type { ClusterConnection } from '../../cluster/io/driver/cluster-connection.ts'
import { allocationLabel } from '../../cluster/protocol/placement/job-group.ts'
import type { Clock } from '../../foundation/clock.ts'
import { describeNode, maxRanks } from '../../tasks/resource-fit.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { Allocation } from '../allocation.ts'
import { RankJob } from './rank-job.ts'
import { RankTask } from './rank-task.ts'
import type { RankTurns } from './rank-turns.ts'

export interface RankTasksOptions {
  readonly listener: BackendListener
  readonly startRanks: Allocation['startRanks']
  readonly clock: Clock
  /** Shared by all sessions of the allocation. */
  readonly turns: RankTurns
}

const maxRememberedTasks = 10_000

export const hasRanks = ({ spec }: Job): boolean => spec.resources.ranks > 1

export class RankTasks implements BackendListener {
  readonly #options: RankTasksOptions
  readonly #tasks = new Map<Job, RankTask>()
  readonly #failedNodes = new Map<string, string>()

  constructor(options: RankTasksOptions) {
    this.#options = options
  }

  /** Submits in order, so that later jobs do not occupy the nodes that an MPI task waits for. */
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

  async release(reason: string): Promise<void> {
    const tasks = [...this.#tasks.values()]
    for (const task of tasks) task.cancel(reason)
    await Promise.all(tasks.map((task) => task.ended))
  }

  report(job: Job, report: TaskReport): void {
    if (job instanceof RankJob) job.task.onReport(job, report)
    else this.#options.listener.report(job, report)
  }

  notice(notice: Notice): void {
    const { listener } = this.#options
    if (notice.kind === 'node-left' && notice.lost !== undefined) {
      const tasks = toTaskUids(notice.lost.tasks)
      return listener.notice({ ...notice, lost: { ...notice.lost, tasks } })
    }
    if (notice.kind !== 'event') return listener.notice(notice)
    const { taskId, fields } = notice
    const own = fields as { readonly tasks?: unknown }
    const tasks = Array.isArray(own.tasks) ? { tasks: toTaskUids(own.tasks as string[]) } : {}
    listener.notice({
      ...notice,
      fields: { ...fields, ...tasks },
      taskId: taskId === null ? null : toTaskUid(taskId),
    })
  }

  #submitRanks(job: Job, connection: ClusterConnection): void {
    const { listener, startRanks, clock, turns } = this.#options
    const { spec, uid } = job
    if (spec.kind !== 'program') throw new TypeError(`task ${uid} is not an executable`)
    const task = new RankTask({
      job,
      spec,
      startRanks,
      connection,
      clock,
      workers: turns.workers,
      avoidedNode: this.#failedNodes.get(uid) ?? null,
      report: (report) => listener.report(job, report),
      onStarted: () => turns.leave(),
      onEnd: (failedOn) => {
        this.#tasks.delete(job)
        if (this.#failedNodes.size >= maxRememberedTasks) this.#failedNodes.clear()
        if (failedOn === null) this.#failedNodes.delete(uid)
        else this.#failedNodes.set(uid, failedOn)
      },
    })
    this.#tasks.set(job, task)
    turns.enter(this, () => task.start())
  }
}

/** The uid of a rank begins with the uid of its task. */
const toTaskUid = (uid: string): string => uid.replace(/#[0-9a-f]{24}\.\d+$/, '')

const toTaskUids = (uids: readonly string[]): string[] => [...new Set(uids.map(toTaskUid))]

/** Returns why no allocation can run the task; `null` if one can, or if nodes may start later. */
export function refuseRanks(
  spec: TaskSpec,
  nodes: readonly NodeCapacity[],
  {
    notes = [],
    mayStartLater = false,
  }: { notes?: readonly string[]; mayStartLater?: boolean } = {},
): Refusal | null {
  const { resources } = spec
  const { ranks, ranksPerNode } = resources
  if (ranks === 1) return null
  if (spec.kind !== 'program') {
    const message = 'only a program has ranks; a function runs in one process'
    return { field: 'resources.ranks', message }
  }
  if (ranksPerNode !== undefined && ranks % ranksPerNode !== 0) {
    const message = `${ranks} ranks cannot be divided into ${ranksPerNode} per node`
    return { field: 'resources.ranksPerNode', message }
  }
  for (const file of Object.values(spec.captureStdio ?? {})) {
    if (file === undefined || file.includes('%r')) continue
    const message = `${file} would be written by ${ranks} ranks; %r stands for the rank in its name`
    return { field: 'captureStdio', message }
  }
  return mayStartLater ? null : refuseMissingSlots(resources, nodes, notes)
}

function refuseMissingSlots(
  resources: ResourceRequest,
  nodes: readonly NodeCapacity[],
  notes: readonly string[],
): Refusal | null {
  const { ranks, ranksPerNode = 1 } = resources
  const allocations = Map.groupBy(nodes, (node) => node.labels?.[allocationLabel]).values()
  const capacities = Array.from(allocations, (allocationNodes) =>
    allocationNodes.reduce((sum, node) => sum + maxRanks(node, resources), 0),
  )
  const capacity = Math.max(0, ...capacities)
  if (capacity >= ranks) return null
  const shape = ranksPerNode === 1 ? '' : `, ${ranksPerNode} per node`
  const wantedText = `${ranks} ranks of ${describeNode(resources)}${shape}`
  const existingNodes = countEqual(nodes.map(describeNode)).join('; ')
  const where = nodes.length === 0 ? 'no node is there' : `there are ${existingNodes}`
  const message = [`there is room for ${capacity} of ${wantedText}; ${where}`, ...notes].join('; ')
  return { field: 'resources.ranks', message }
}

/** Counts equal texts. Returns texts such as `4 nodes with …`. */
function countEqual(texts: readonly string[]): string[] {
  const counts = new Map<string, number>()
  for (const text of texts) counts.set(text, (counts.get(text) ?? 0) + 1)
  return Array.from(
    counts,
    ([text, count]) => `${count === 1 ? 'a node' : `${count} nodes`} with ${text}`,
  )
}
