/** One allocation that the backend requested on its own, from submission until it has ended. */

import type { NodeLoad } from '../../cluster/driver/placement/placement-state.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { poll } from '../../runtime/retry.ts'
import type { NodeAgents } from '../agents/node-agents.ts'
import type { Allocation } from '../allocation.ts'
import { AllocationWatch } from '../allocation-watch.ts'
import { mayHaveSubmitted, withdrawRequest } from '../launch/folder-jobs.ts'
import { PlaceholderJob, type PlaceholderJobOptions } from '../launch/placeholder-job.ts'
import type { LaunchFolder } from '../launch/launch-folder.ts'
import { answerMs, within } from '../launch/submit-batch.ts'
import { isSilence, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { judgeEnd, type PilotEnd } from './pilot-history.ts'
import type { Pilot } from './pilot-plan.ts'

export interface PilotJobOptions {
  readonly id: string
  /** The index of the allocation's kind. */
  readonly kind: number
  /** The work that the allocation is requested for, by `workKey`. */
  readonly work: readonly string[]
  /** Creates the job's folder, and the options of sbatch. */
  readonly prepare: () => Pick<PlaceholderJobOptions, 'folder' | 'batch'>
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly log: Log
  readonly graceSeconds: number
  readonly addAgents: (allocation: Allocation, jobId: string) => Promise<NodeAgents>
  readonly removeAgents: (agents: NodeAgents) => Promise<void>
  /** Returns the keys (`workKey`) of the waiting work. */
  readonly waiting: () => ReadonlySet<string>
  /**
   * Called when Slurm has accepted the request, the nodes are ready, or the job is about to end.
   */
  readonly onChange: () => void
  readonly onEnding: (secondsLeft: number, jobId: string) => void
  readonly onSilent: (reason: string) => void
}

/** How long before the allocation's time limit the agents are closed. */
const closeMs = 5000
/** How often to query the scheduler about an allocation whose agents have all exited. */
const questionMs = 1000
const maxQuestions = 30
/** The time between attempts to cancel a job while the scheduler does not answer. */
const cancelMs = 10_000

export class PilotJob implements Pilot {
  readonly id: string
  readonly kind: number
  readonly submittedAt: number
  readonly work: readonly string[]
  /** `ending`: it gets no more tasks. */
  phase: 'submitting' | 'queued' | 'running' | 'ending' = 'submitting'
  /** `null` before it runs. */
  allocation: Allocation | null = null
  startedAt: number | null = null
  readyAt: number | null = null
  idleSince: number | null = null
  hasRun = false
  /** Resolves when the job has ended and is cleaned up. */
  readonly ended: Promise<PilotEnd>
  readonly #options: PilotJobOptions
  readonly #abort = new AbortController()
  /** Stops retrying requests to a scheduler that does not answer. */
  readonly #closing = new AbortController()
  readonly #over = Promise.withResolvers<string | null>()
  #folder: LaunchFolder | null = null
  /** `null` until Slurm has accepted the job. */
  #jobId: string | null = null
  #watch: AllocationWatch | null = null
  /** Why the scheduler ended the allocation. */
  #cause: 'limit' | 'loss' = 'loss'
  /** The number of tasks that the nodes have received from the connected sessions. */
  #taken = 0

  constructor(options: PilotJobOptions) {
    this.#options = options
    this.id = options.id
    this.kind = options.kind
    this.work = options.work
    this.submittedAt = options.clock.now()
    this.ended = this.#run()
  }

  get isEnding(): boolean {
    return this.phase === 'ending'
  }

  has(node: string): boolean {
    return this.allocation?.nodes.some(({ name }) => name === node) ?? false
  }

  /** The seconds until the allocation ends, and running tasks are lost. */
  get secondsLeft(): number {
    return this.#watch?.secondsLeft ?? Infinity
  }

  /** Called periodically with the load of all nodes. */
  note(nodes: ReadonlyMap<string, NodeLoad>): void {
    const own = this.allocation?.nodes.flatMap(({ name }) => nodes.get(name) ?? []) ?? []
    const taken = own.reduce((sum, one) => sum + one.taken, 0)
    const isBusy = this.readyAt === null || own.some((one) => one.isBusy)
    const isIdle = !isBusy && taken === this.#taken
    const now = this.#options.clock.now()
    this.idleSince = isBusy ? null : isIdle ? (this.idleSince ?? now) : now
    this.#taken = taken
    if (taken > 0) this.hasRun = true
  }

  /** Releases the allocation: immediately while it is queued, otherwise after its running tasks. */
  giveBack(): void {
    this.phase = 'ending'
    this.#abort.abort()
    this.#over.resolve(null)
  }

  /**
   * Releases the allocation when the backend closes. Does not wait for an unresponsive scheduler.
   */
  close(): Promise<PilotEnd> {
    this.#closing.abort()
    this.giveBack()
    return this.ended
  }

  async #run(): Promise<PilotEnd> {
    try {
      const reason = await this.#hold()
      if (reason === null) return this.#endOf('given back', '')
      const age = this.#options.clock.now() - (this.startedAt ?? this.submittedAt)
      const { hasRun, readyAt } = this
      const missed = this.#missed()
      return this.#endOf(judgeEnd(age, this.#cause, { hasRun, readyAt, missed }), reason)
    } catch (error) {
      const isSilent = isSilence(error)
      if (isSilent) this.#options.onSilent(messageOf(error))
      await this.#withdraw(error)
      if (!isSilent) return this.#endOf('failed', messageOf(error))
      const kind = this.#jobId === null ? 'unanswered' : 'given back'
      return this.#endOf(kind, messageOf(error))
    }
  }

  /** Removes a job from the queue whose cancellation failed, or whose id is unknown. */
  async #withdraw(cause: unknown): Promise<void> {
    const { commands, clock } = this.#options
    const { signal } = this.#closing
    const jobId = this.#jobId
    const folder = this.#folder
    if (jobId !== null) {
      await poll({ delayMs: cancelMs }, () => this.#isCanceled(jobId), { clock, signal })
    } else if (folder !== null && mayHaveSubmitted(cause)) {
      await within(signal, answerMs, clock, (late) => {
        const options = { clock, maxMs: Infinity, signal: late }
        return withdrawRequest(folder, commands.endedBy(late), options)
      })
    }
  }

  async #isCanceled(jobId: string): Promise<boolean> {
    try {
      await this.#options.commands.run('scancel', '--quiet', jobId)
      return true
    } catch (error) {
      return !isSilence(error)
    }
  }

  #endOf(kind: PilotEnd['kind'], reason: string): PilotEnd {
    const { submittedAt, hasRun } = this
    const at = this.#options.clock.now()
    return { kind, reason, submittedAt, at, hasRun, missed: this.#missed() }
  }

  /** The work that the allocation was requested for, but could not run. */
  #missed(): readonly string[] {
    if (this.readyAt === null || this.hasRun) return []
    const waiting = this.#options.waiting()
    return this.work.filter((key) => waiting.has(key))
  }

  /**
   * Resolves with the reason if the scheduler ended the allocation, with `null` if it was released.
   */
  async #hold(): Promise<string | null> {
    const { prepare, commands, clock, onChange } = this.#options
    const prepared = prepare()
    this.#folder = prepared.folder
    const held = await PlaceholderJob.open({
      ...prepared,
      commands,
      clock,
      withdrawMs: 0,
      signal: this.#abort.signal,
      onSubmitted: (jobId) => {
        this.#jobId = jobId
        if (this.phase === 'submitting') this.phase = 'queued'
        onChange()
      },
      onStatus: () => {},
    })
    if (held === null) return null
    try {
      return await this.#use(held)
    } finally {
      await held.close()
    }
  }

  async #use({ allocation, jobId }: PlaceholderJob): Promise<string | null> {
    const { addAgents, removeAgents, clock, onChange } = this.#options
    // Set before the agents start, because the first one may get tasks while others are starting.
    this.startedAt = clock.now()
    this.allocation = allocation
    this.#watch = this.#watchEnd(allocation, jobId)
    const agents = await addAgents(allocation, jobId).catch((error: unknown) => {
      this.#watch?.close()
      throw error
    })
    try {
      this.readyAt = clock.now()
      if (this.phase !== 'ending') this.phase = 'running'
      onChange()
      void this.#askWhenAgentsEnd(allocation, agents)
      void agents.givenUp.then((why) => this.#over.resolve(why))
      const reason = await this.#over.promise
      this.phase = 'ending'
      await this.#drain(agents)
      return reason
    } finally {
      this.#watch?.close()
      await removeAgents(agents)
    }
  }

  /** If all agents exit, the allocation may have ended, which the scheduler reports later. */
  async #askWhenAgentsEnd(allocation: Allocation, agents: NodeAgents): Promise<void> {
    await agents.ended()
    const ask = async (): Promise<boolean> => {
      if (this.phase === 'running') await allocation.state({ isChanged: true }).catch(() => null)
      return this.phase !== 'running'
    }
    await poll({ delayMs: questionMs, maxAttempts: maxQuestions }, ask, this.#options)
  }

  #watchEnd(allocation: Allocation, jobId: string): AllocationWatch {
    const { clock, log, graceSeconds } = this.#options
    const onEnding = (secondsLeft: number): void => this.#options.onEnding(secondsLeft, jobId)
    const onEnd = (reason: string, cause: 'limit' | 'loss'): void => {
      this.#cause = cause
      this.#over.resolve(reason)
    }
    return new AllocationWatch({ allocation, graceSeconds, clock, log, onEnding, onEnd })
  }

  /** Tasks that still run when the time is over are lost with the nodes, and retried elsewhere. */
  async #drain(agents: NodeAgents): Promise<void> {
    const { clock, graceSeconds } = this.#options
    agents.drain()
    const waitMs = Math.max(0, Math.min(this.secondsLeft + graceSeconds, 1e6) * 1000 - closeMs)
    await boundedWait(clock, waitMs, agents.ended()).catch(() => {})
  }
}
