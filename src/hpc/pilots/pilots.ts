/** The allocations that a backend asks for by itself, by the work that waits. */

import { allocationLabel } from '../../cluster/driver/placement/job-group.ts'
import type { ClusterLoad } from '../../cluster/driver/placement/placement-state.ts'
import type { Clock } from '../../foundation/clock.ts'
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
  hasStopped,
  noHistory,
  noteEnd,
  type PilotCandidate,
  type PilotHistory,
  type PilotKind,
  planPilots,
  roomOf,
} from './pilot-plan.ts'
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
  /** What waits, and the nodes that run something. */
  readonly load: () => ClusterLoad
  readonly onEnding: (secondsLeft: number) => void
}

const planMs = 1000

export class Pilots {
  readonly #options: PilotsOptions
  readonly #kinds: readonly PilotKind[]
  readonly #histories: PilotHistory[]
  readonly #jobs = new Map<string, PilotJob>()
  #count = 0
  #cancelPlan: () => void = () => {}
  #isClosed = false

  constructor(options: PilotsOptions) {
    this.#options = options
    this.#kinds = options.sources.map(({ kind }) => kind)
    this.#histories = options.sources.map(() => noHistory)
    this.#plan()
  }

  /** The allocation of a node that is one of these. */
  allocationOf(node: string): Allocation | null {
    return this.#jobOf(node)?.allocation ?? null
  }

  /** Until what runs on this node is lost; `null` for a node that is not one of these. */
  secondsLeftAt(node: string): number | null {
    return this.#jobOf(node)?.secondsLeft ?? null
  }

  /** The longest that a task may run, in one that is there or may come. */
  get longestSeconds(): number {
    const there = Array.from(this.#jobs.values(), ({ secondsLeft }) => secondsLeft)
    return Math.max(...this.#open().map(({ usableSeconds }) => usableSeconds), 0, ...there)
  }

  /** What the nodes have that may come. */
  get candidates(): readonly PilotCandidate[] {
    return this.#open().flatMap(({ candidates }) => candidates)
  }

  /** Whether an allocation may come, or is about to, where such tasks could run. */
  mayRun(resources: ResourceRequest): boolean {
    return this.#kinds.some((kind, at) => {
      const isComing = Array.from(this.#jobs.values()).some((job) => job.kind === at)
      return (isComing || this.#mayAsk(at)) && roomOf(kind, resources) > 0
    })
  }

  /** Why no allocation comes where such tasks could run; `null` while one may. */
  whyNone(resources: ResourceRequest): BackendError | null {
    if (this.mayRun(resources)) return null
    const at = this.#kinds.findIndex((kind) => roomOf(kind, resources) > 0)
    const history = this.#histories[at]
    if (history === undefined) {
      return new BackendError('no allocation that may be asked for has what the task asks for', {
        code: 'AllocationRefusedError',
      })
    }
    const why = hasStopped(history)
      ? `${history.failures} failed in a row: ${history.reason}`
      : `${history.submitted} were asked for, which is maxTotal`
    return new BackendError(`no further allocation is asked for: ${why}`, {
      code: 'AllocationRefusedError',
    })
  }

  /** Gives all back, and resolves when nothing of them is left. */
  async close(): Promise<void> {
    this.#isClosed = true
    this.#cancelPlan()
    const jobs = [...this.#jobs.values()]
    for (const job of jobs) job.giveBack()
    await Promise.all(jobs.map(({ ended }) => ended))
  }

  #open(): readonly PilotKind[] {
    return this.#kinds.filter((_, at) => this.#mayAsk(at))
  }

  #mayAsk(at: number): boolean {
    const history = this.#histories[at] ?? noHistory
    return !hasStopped(history) && history.submitted < (this.#kinds[at]?.maxTotal ?? 0)
  }

  #jobOf(node: string): PilotJob | undefined {
    return Array.from(this.#jobs.values()).find((job) => job.has(node))
  }

  #plan(): void {
    this.#cancelPlan()
    if (this.#isClosed) return
    const { clock, load } = this.#options
    const { waiting, busyNodes } = load()
    const busy = new Set(busyNodes)
    const jobs = [...this.#jobs.values()]
    const { submit, end } = planPilots({
      kinds: this.#kinds,
      work: waiting,
      pilots: jobs.map((job) => ({
        id: job.id,
        kind: job.kind,
        startedAt: job.startedAt,
        isEnding: job.phase === 'ending',
        idleSince: job.idleSince(busy),
      })),
      histories: this.#histories,
      now: clock.now(),
    })
    for (const id of end) this.#jobs.get(id)?.giveBack()
    const isBusy = (at: number): boolean =>
      jobs.some(({ kind, phase }) => kind === at && phase === 'submitting')
    for (const at of submit) if (!isBusy(at)) this.#submit(at)
    this.#cancelPlan = clock.after(planMs, () => this.#plan(), { background: true })
  }

  #submit(at: number): void {
    const { sources, folders, addAgents, ...common } = this.#options
    const { options, kind } = sources[at] as PilotSource
    const history = this.#histories[at] as PilotHistory
    this.#histories[at] = { ...history, submitted: history.submitted + 1 }
    const id = String(++this.#count)
    const folder = folders()
    const job = new PilotJob({
      ...common,
      id,
      kind: at,
      folder,
      batch: toBatchOptions(options.request, `tutti-pilot-${id}`, folder),
      addAgents: (allocation, jobId) =>
        addAgents(allocation, { ...kind.candidates[0]?.labels, [allocationLabel]: jobId }),
      onChange: () => this.#plan(),
    })
    this.#jobs.set(id, job)
    void this.#followEnd(job)
  }

  async #followEnd({ id, kind, ended }: PilotJob): Promise<void> {
    const end = await ended
    this.#jobs.delete(id)
    const history = noteEnd(this.#histories[kind] as PilotHistory, end)
    this.#histories[kind] = history
    if (end.kind === 'failed') this.#tellFailure(end.reason, history)
    this.#plan()
  }

  #tellFailure(reason: string, history: PilotHistory): void {
    const next = hasStopped(history) ? 'no further one is asked for' : 'another one is tried later'
    this.#options.log.warn('AllocationFailed', `an allocation has failed: ${reason}; ${next}`)
  }
}
