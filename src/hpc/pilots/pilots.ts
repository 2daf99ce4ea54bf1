/** Requests and releases allocations as waiting tasks require. */

import { allocationLabel } from '../../cluster/protocol/placement/job-group.ts'
import type { ClusterLoad } from '../../cluster/protocol/placement/placement-state.ts'
import { describeNode, describeRequest } from '../../tasks/resource-fit.ts'
import { BackendError } from '../../foundation/errors.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { NodeAgents } from '../agents/node-agents.ts'
import type { Allocation } from '../allocation.ts'
import { toBatchOptions } from '../launch/batch-job.ts'
import type { LaunchFolder } from '../launch/launch-folder.ts'
import { PilotJob, type PilotJobOptions } from './pilot-job.ts'
import {
  countFailedRequests,
  hasStopped,
  emptyHistory,
  noteEnd,
  resetFailures,
  type PilotHistory,
  workKey,
} from './pilot-history.ts'
import {
  provesKind,
  type PilotKind,
  type PilotOrder,
  planPilots,
  countCapacity,
} from './pilot-plan.ts'
import type { PilotSource } from './pilot-sources.ts'

export interface PilotsOptions extends Pick<
  PilotJobOptions,
  'commands' | 'clock' | 'log' | 'graceSeconds' | 'removeAgents' | 'onEnding'
> {
  readonly sources: readonly PilotSource[]
  readonly createFolder: () => LaunchFolder
  readonly addAgents: (
    allocation: Allocation,
    labels: Readonly<Record<string, string>>,
  ) => Promise<NodeAgents>
  readonly load: () => ClusterLoad
}

const planIntervalMs = 1000
const maxDescribedNodes = 5

export class Pilots {
  readonly #options: PilotsOptions
  readonly #kinds: readonly PilotKind[]
  readonly #histories: PilotHistory[]
  readonly #jobs = new Map<string, PilotJob>()
  #count = 0
  #plannedAt = -Infinity
  #cancelPlan: () => void = () => {}
  #isSilent = false
  #isClosed = false

  constructor(options: PilotsOptions) {
    this.#options = options
    this.#kinds = options.sources.map(({ kind }) => kind)
    this.#histories = options.sources.map(() => emptyHistory)
    this.#plan()
  }

  allocationOf(node: string): Allocation | null {
    return this.#findJob(node)?.allocation ?? null
  }

  secondsLeftAt(node: string): number | null {
    return this.#findJob(node)?.secondsLeft ?? null
  }

  /** The usable seconds of each kind that has a time limit. */
  get horizons(): readonly number[] {
    return this.#kinds.map(({ usableSeconds }) => usableSeconds).filter(Number.isFinite)
  }

  mayRun(resources: ResourceRequest): boolean {
    const key = workKey({ resources })
    return this.#kinds.some((kind, at) => {
      if (countCapacity(kind, resources) === 0) return false
      return countFailedRequests(this.#getHistory(at), key) === null && this.#mayStart(at)
    })
  }

  findRefusal(resources: ResourceRequest): BackendError | null {
    if (this.mayRun(resources)) return null
    const at = this.#kinds.findIndex((kind) => countCapacity(kind, resources) > 0)
    const why =
      at === -1
        ? 'no allocation that can be requested has what the task needs'
        : `no further allocation is requested: ${this.#explainStop(at, resources)}`
    return new BackendError(why, { code: 'AllocationRefusedError' })
  }

  describeFutureNodes(resources: ResourceRequest): readonly string[] {
    const canRun = this.#kinds.some((kind) => countCapacity(kind, resources) > 0)
    const nodes = this.#kinds.flatMap((kind, at) => (this.#mayStart(at) ? describeNodes(kind) : []))
    const shown = [...new Set(nodes)].slice(0, maxDescribedNodes)
    return [
      ...(canRun ? [this.findRefusal(resources)?.message ?? ''] : []),
      ...(shown.length === 0 ? [] : [`an allocation that may come has ${shown.join('; or ')}`]),
    ]
  }

  #explainStop(at: number, resources: ResourceRequest): string {
    const history = this.#getHistory(at)
    const failed = countFailedRequests(history, workKey({ resources }))
    if (failed !== null) {
      const wanted = describeRequest(resources)
      return `${failed} started, and none of them could run a task with ${wanted}`
    }
    return this.#hasStopped(at)
      ? `${history.failures} failed in a row: ${history.reason}`
      : `${history.submitted} were requested, which is maxTotal`
  }

  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelPlan()
    await Promise.all(Array.from(this.#jobs.values(), (job) => job.close()))
  }

  #mayStart(at: number): boolean {
    if (this.#listJobs(at).length > 0) return true
    const { submitted } = this.#getHistory(at)
    return !this.#hasStopped(at) && submitted < (this.#kinds[at]?.maxTotal ?? 0)
  }

  #hasStopped(at: number): boolean {
    const now = this.#options.clock.now()
    const hasWorking = this.#listJobs(at).some((job) => provesKind(job, now))
    return hasStopped(this.#getHistory(at), hasWorking)
  }

  #getHistory(at: number): PilotHistory {
    return this.#histories[at] ?? emptyHistory
  }

  #listJobs(at: number): readonly PilotJob[] {
    return Array.from(this.#jobs.values()).filter(({ kind }) => kind === at)
  }

  #findJob(node: string): PilotJob | undefined {
    // Uses the newest job, because an older job on the same node may be ending.
    return Array.from(this.#jobs.values()).findLast((job) => job.has(node))
  }

  #plan(): void {
    this.#cancelPlan()
    if (this.#isClosed) return
    const { clock, load } = this.#options
    const { waiting, nodes } = load()
    const jobs = [...this.#jobs.values()]
    const now = clock.now()
    for (const job of jobs) this.#updateLoad(job, nodes, now)
    this.#plannedAt = now
    const { submit, end } = planPilots({
      kinds: this.#kinds,
      work: waiting,
      pilots: jobs,
      histories: this.#histories,
      now,
    })
    for (const id of end) this.#jobs.get(id)?.release()
    const isBusy = (at: number): boolean =>
      jobs.some(({ kind, phase }) => kind === at && phase === 'submitting')
    for (const order of submit) if (!isBusy(order.kind)) this.#submit(order)
    this.#cancelPlan = clock.after(planIntervalMs, () => this.#plan(), { background: true })
  }

  #updateLoad(job: PilotJob, nodes: ClusterLoad['nodes'], now: number): void {
    const { kind } = job
    const wasWorking = provesKind(job, this.#plannedAt)
    job.updateLoad(nodes)
    if (!wasWorking && provesKind(job, now))
      this.#histories[kind] = resetFailures(this.#getHistory(kind))
  }

  #submit({ kind: at, work, ...order }: PilotOrder): void {
    const { sources, createFolder, addAgents, load, ...common } = this.#options
    const { options } = sources[at] as PilotSource
    const history = this.#getHistory(at)
    this.#histories[at] = { ...history, submitted: history.submitted + 1 }
    const id = String(++this.#count)
    const job = new PilotJob({
      ...common,
      id,
      kind: at,
      work,
      waiting: () => new Set(load().waiting.map(workKey)),
      prepare: () => {
        const folder = createFolder()
        const min = toMinimumOptions(order)
        const request = { ...options.request, more: [...options.request.more, ...min] }
        return { folder, batch: toBatchOptions(request, `tutti-pilot-${id}`, folder) }
      },
      addAgents: (allocation, jobId) => {
        // If several partitions were requested, this is the one that Slurm chose.
        const partition = String(allocation.facts['partition'])
        return addAgents(allocation, { ...options.labels, partition, [allocationLabel]: jobId })
      },
      onChange: () => this.#plan(),
      onSilent: (reason) => this.#warnSilence(reason),
    })
    this.#jobs.set(id, job)
    void this.#followEnd(job)
  }

  async #followEnd({ id, kind, ended }: PilotJob): Promise<void> {
    const end = await ended
    this.#jobs.delete(id)
    const history = noteEnd(this.#getHistory(kind), end)
    this.#histories[kind] = history
    if (this.#isClosed) return
    if (end.kind !== 'unanswered') this.#isSilent = false
    if (end.kind === 'failed') this.#warnFailure(end.reason, kind)
    else if (end.missed.length > 0) this.#warnMissed(end.missed, history)
    this.#plan()
  }

  #warnSilence(reason: string): void {
    const text = `${reason}; allocations are requested when Slurm answers again`
    if (!this.#isSilent && !this.#isClosed) this.#options.log.warn('SchedulerSilent', text)
    this.#isSilent = true
  }

  #warnFailure(reason: string, at: number): void {
    const isOver = this.#hasStopped(at)
    const next = isOver ? 'no further one is requested' : 'another one is tried later'
    this.#options.log.warn('AllocationFailed', `an allocation failed: ${reason}; ${next}`)
  }

  #warnMissed(missed: readonly string[], history: PilotHistory): void {
    const isOver = missed.every((key) => countFailedRequests(history, key) !== null)
    const next = isOver ? 'no further one is requested for them' : 'another one is tried later'
    const text = 'an allocation started, but could run none of the tasks that it was requested for'
    this.#options.log.warn('AllocationFailed', `${text}; ${next}`)
  }
}

/**
 * Returns the options for the minimum resources. They must come last, because the last occurrence
 * of an `sbatch` option counts.
 */
const toMinimumOptions = ({
  minCores,
  minMemoryMb,
}: Pick<PilotOrder, 'minCores' | 'minMemoryMb'>): readonly string[] => [
  ...(minCores === null ? [] : [`--mincpus=${minCores}`]),
  ...(minMemoryMb === null ? [] : [`--mem=${minMemoryMb}`]),
]

function describeNodes({ candidates, nodes, usableSeconds }: PilotKind): string[] {
  const count = nodes === 1 ? 'a node' : `${nodes} nodes`
  const time = Number.isFinite(usableSeconds) ? `, for tasks of up to ${usableSeconds} s` : ''
  return candidates.map((one) => `${count} with ${describeNode(one)}${time}`)
}
