/** The allocations that a backend requests on its own, as waiting tasks require. */

import { allocationLabel } from '../../cluster/driver/placement/job-group.ts'
import type { ClusterLoad } from '../../cluster/driver/placement/placement-state.ts'
import type { Clock } from '../../foundation/clock.ts'
import { describeNode, describeRequest } from '../../tasks/resource-fit.ts'
import { BackendError } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import type { ResourceRequest } from '../../tasks/resources.ts'
import type { NodeAgents } from '../agents/node-agents.ts'
import type { Allocation } from '../allocation.ts'
import { toBatchOptions } from '../launch/batch-job.ts'
import type { LaunchFolder } from '../launch/launch-folder.ts'
import type { SlurmCommands } from '../slurm/slurm-commands.ts'
import { PilotJob } from './pilot-job.ts'
import {
  failedRequests,
  hasStopped,
  noHistory,
  noteEnd,
  noteGood,
  type PilotHistory,
  workKey,
} from './pilot-history.ts'
import { provesKind, type PilotKind, type PilotOrder, planPilots, roomOf } from './pilot-plan.ts'
import type { PilotSource } from './pilot-sources.ts'

export interface PilotsOptions {
  readonly sources: readonly PilotSource[]
  readonly folders: () => LaunchFolder
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly log: Log
  readonly graceSeconds: number
  readonly addAgents: (
    allocation: Allocation,
    labels: Readonly<Record<string, string>>,
  ) => Promise<NodeAgents>
  readonly removeAgents: (agents: NodeAgents) => Promise<void>
  /** The waiting work, and the load of the nodes. */
  readonly load: () => ClusterLoad
  readonly onEnding: (secondsLeft: number, jobId: string) => void
}

const planMs = 1000
/** The maximum number of distinct nodes in one message. */
const maxDescribed = 5

export class Pilots {
  readonly #options: PilotsOptions
  readonly #kinds: readonly PilotKind[]
  readonly #histories: PilotHistory[]
  readonly #jobs = new Map<string, PilotJob>()
  #count = 0
  /** When the last plan was made, in seconds since the epoch. */
  #plannedAt = -Infinity
  #cancelPlan: () => void = () => {}
  /** Whether Slurm did not answer the last request. */
  #isSilent = false
  #isClosed = false

  constructor(options: PilotsOptions) {
    this.#options = options
    this.#kinds = options.sources.map(({ kind }) => kind)
    this.#histories = options.sources.map(() => noHistory)
    this.#plan()
  }

  /** The allocation of a node; `null` if the node is in none of these allocations. */
  allocationOf(node: string): Allocation | null {
    return this.#jobOf(node)?.allocation ?? null
  }

  /**
   * The seconds until tasks on this node are lost; `null` if the node is in none of these
   * allocations.
   */
  secondsLeftAt(node: string): number | null {
    return this.#jobOf(node)?.secondsLeft ?? null
  }

  /** The usable run time of each kind that has a limit. */
  get horizons(): readonly number[] {
    return this.#kinds.map(({ usableSeconds }) => usableSeconds).filter(Number.isFinite)
  }

  /** Whether an allocation that could run such tasks exists or may still be requested. */
  mayRun(resources: ResourceRequest): boolean {
    const key = workKey({ resources })
    return this.#kinds.some((kind, at) => {
      if (roomOf(kind, resources) === 0) return false
      return failedRequests(this.#historyOf(at), key) === null && this.#mayCome(at)
    })
  }

  /** Why no allocation will start that could run such tasks; `null` while one may. */
  whyNone(resources: ResourceRequest): BackendError | null {
    if (this.mayRun(resources)) return null
    const at = this.#kinds.findIndex((kind) => roomOf(kind, resources) > 0)
    const why =
      at === -1
        ? 'no allocation that can be requested has what the task needs'
        : `no further allocation is requested: ${this.#whyNoMore(at, resources)}`
    return new BackendError(why, { code: 'AllocationRefusedError' })
  }

  /** Describes the allocations that may be requested, for the message of a refusal. */
  describeComing(resources: ResourceRequest): readonly string[] {
    const why = this.#kinds.some((kind) => roomOf(kind, resources) > 0)
    const nodes = this.#kinds.flatMap((kind, at) => (this.#mayCome(at) ? describeNodes(kind) : []))
    const shown = [...new Set(nodes)].slice(0, maxDescribed)
    return [
      ...(why ? [this.whyNone(resources)?.message ?? ''] : []),
      ...(shown.length === 0 ? [] : [`an allocation that may come has ${shown.join('; or ')}`]),
    ]
  }

  #whyNoMore(at: number, resources: ResourceRequest): string {
    const history = this.#historyOf(at)
    const failed = failedRequests(history, workKey({ resources }))
    if (failed !== null) {
      const wanted = describeRequest(resources)
      return `${failed} started, and none of them could run a task with ${wanted}`
    }
    return this.#hasStopped(at)
      ? `${history.failures} failed in a row: ${history.reason}`
      : `${history.submitted} were requested, which is maxTotal`
  }

  /** Releases all allocations. Resolves when all of them have ended. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelPlan()
    await Promise.all(Array.from(this.#jobs.values(), (job) => job.close()))
  }

  /** Whether an allocation of this kind exists or may still be requested. */
  #mayCome(at: number): boolean {
    if (this.#jobsOf(at).length > 0) return true
    const { submitted } = this.#historyOf(at)
    return !this.#hasStopped(at) && submitted < (this.#kinds[at]?.maxTotal ?? 0)
  }

  #hasStopped(at: number): boolean {
    const now = this.#options.clock.now()
    const hasGood = this.#jobsOf(at).some((job) => provesKind(job, now))
    return hasStopped(this.#historyOf(at), hasGood)
  }

  #historyOf(at: number): PilotHistory {
    return this.#histories[at] ?? noHistory
  }

  #jobsOf(at: number): readonly PilotJob[] {
    return Array.from(this.#jobs.values()).filter(({ kind }) => kind === at)
  }

  #jobOf(node: string): PilotJob | undefined {
    // Uses the newest job, because an older job of the same node may be about to end.
    return Array.from(this.#jobs.values()).findLast((job) => job.has(node))
  }

  #plan(): void {
    this.#cancelPlan()
    if (this.#isClosed) return
    const { clock, load } = this.#options
    const { waiting, nodes } = load()
    const jobs = [...this.#jobs.values()]
    const now = clock.now()
    for (const job of jobs) this.#note(job, nodes, now)
    this.#plannedAt = now
    const { submit, end } = planPilots({
      kinds: this.#kinds,
      work: waiting,
      pilots: jobs,
      histories: this.#histories,
      now,
    })
    for (const id of end) this.#jobs.get(id)?.giveBack()
    const isBusy = (at: number): boolean =>
      jobs.some(({ kind, phase }) => kind === at && phase === 'submitting')
    for (const order of submit) if (!isBusy(order.kind)) this.#submit(order)
    this.#cancelPlan = clock.after(planMs, () => this.#plan(), { background: true })
  }

  #note(job: PilotJob, nodes: ClusterLoad['nodes'], now: number): void {
    const { kind } = job
    const wasGood = provesKind(job, this.#plannedAt)
    job.note(nodes)
    if (!wasGood && provesKind(job, now)) this.#histories[kind] = noteGood(this.#historyOf(kind))
  }

  #submit({ kind: at, work, ...order }: PilotOrder): void {
    const { sources, folders, addAgents, load, ...common } = this.#options
    const { options } = sources[at] as PilotSource
    const history = this.#historyOf(at)
    this.#histories[at] = { ...history, submitted: history.submitted + 1 }
    const id = String(++this.#count)
    const job = new PilotJob({
      ...common,
      id,
      kind: at,
      work,
      waiting: () => new Set(load().waiting.map(workKey)),
      prepare: () => {
        const folder = folders()
        const min = toMinimum(order)
        const request = { ...options.request, more: [...options.request.more, ...min] }
        return { folder, batch: toBatchOptions(request, `tutti-pilot-${id}`, folder) }
      },
      addAgents: (allocation, jobId) => {
        // Slurm has chosen one of the requested partitions.
        const partition = String(allocation.facts['partition'])
        return addAgents(allocation, { ...options.labels, partition, [allocationLabel]: jobId })
      },
      onChange: () => this.#plan(),
      onSilent: (reason) => this.#tellSilence(reason),
    })
    this.#jobs.set(id, job)
    void this.#followEnd(job)
  }

  async #followEnd({ id, kind, ended }: PilotJob): Promise<void> {
    const end = await ended
    this.#jobs.delete(id)
    const history = noteEnd(this.#historyOf(kind), end)
    this.#histories[kind] = history
    if (this.#isClosed) return
    if (end.kind !== 'unanswered') this.#isSilent = false
    if (end.kind === 'failed') this.#tellFailure(end.reason, kind)
    else if (end.missed.length > 0) this.#tellMissed(end.missed, history)
    this.#plan()
  }

  /** Warns once per period in which Slurm does not answer. */
  #tellSilence(reason: string): void {
    const text = `${reason}; allocations are requested when Slurm answers again`
    if (!this.#isSilent && !this.#isClosed) this.#options.log.warn('SchedulerSilent', text)
    this.#isSilent = true
  }

  #tellFailure(reason: string, at: number): void {
    const isOver = this.#hasStopped(at)
    const next = isOver ? 'no further one is requested' : 'another one is tried later'
    this.#options.log.warn('AllocationFailed', `an allocation failed: ${reason}; ${next}`)
  }

  #tellMissed(missed: readonly string[], history: PilotHistory): void {
    const isOver = missed.every((key) => failedRequests(history, key) !== null)
    const next = isOver ? 'no further one is requested for them' : 'another one is tried later'
    const text = 'an allocation started, but could run none of the tasks that it was requested for'
    this.#options.log.warn('AllocationFailed', `${text}; ${next}`)
  }
}

/** Appended last, because the last occurrence of an sbatch option takes precedence. */
const toMinimum = ({
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
