/** One allocation that the backend requested itself, from submission until its end. */

import type { NodeLoad } from '../../cluster/protocol/placement/placement-state.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { poll } from '../../runtime/retry.ts'
import type { NodeAgents } from '../agents/node-agents.ts'
import type { Allocation } from '../allocation.ts'
import { AllocationWatch } from '../allocation-watch.ts'
import { PlaceholderJob, type PlaceholderJobOptions } from '../launch/placeholder-job.ts'
import type { LaunchFolder } from '../launch/launch-folder.ts'
import { mayHaveSubmitted, runWithDeadline, withdrawRequest } from '../launch/submit-batch.ts'
import { isNoAnswer, type SlurmCommands } from '../slurm/slurm-commands.ts'
import { classifyEnd, type PilotEnd } from './pilot-history.ts'
import type { Pilot } from './pilot-plan.ts'

export interface PilotJobOptions {
  readonly id: string
  readonly kind: number
  readonly work: readonly string[]
  readonly prepare: () => Pick<PlaceholderJobOptions, 'folder' | 'batch'>
  readonly commands: SlurmCommands
  readonly clock: Clock
  readonly log: Log
  readonly graceSeconds: number
  readonly addAgents: (allocation: Allocation, jobId: string) => Promise<NodeAgents>
  readonly removeAgents: (agents: NodeAgents) => Promise<void>
  readonly waiting: () => ReadonlySet<string>
  /** Called when Slurm has accepted the request, and when the nodes are ready. */
  readonly onChange: () => void
  readonly onEnding: (secondsLeft: number, jobId: string) => void
  readonly onSilent: (reason: string) => void
}

const closeBeforeEndMs = 5000
/** The interval of queries to the scheduler after all agents have exited. */
const queryIntervalMs = 1000
const maxQueries = 30
const cancelIntervalMs = 10_000

export class PilotJob implements Pilot {
  readonly id: string
  readonly kind: number
  readonly submittedAt: number
  readonly work: readonly string[]
  /** In the phase `ending`, the allocation gets no more tasks. */
  phase: 'submitting' | 'queued' | 'running' | 'ending' = 'submitting'
  allocation: Allocation | null = null
  startedAt: number | null = null
  readyAt: number | null = null
  idleSince: number | null = null
  hasRun = false
  /** Resolves when the job has ended and everything is cleaned up. */
  readonly ended: Promise<PilotEnd>
  readonly #options: PilotJobOptions
  readonly #abort = new AbortController()
  /** Aborted when the backend closes, to stop retries if the scheduler does not answer. */
  readonly #closing = new AbortController()
  readonly #over = Promise.withResolvers<string | null>()
  #folder: LaunchFolder | null = null
  #jobId: string | null = null
  #watch: AllocationWatch | null = null
  #cause: 'limit' | 'loss' = 'loss'
  #receivedTasks = 0

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

  get secondsLeft(): number {
    return this.#watch?.secondsLeft ?? Infinity
  }

  /** Must be called periodically with the load of all nodes. */
  updateLoad(nodes: ReadonlyMap<string, NodeLoad>): void {
    const loads = this.allocation?.nodes.flatMap(({ name }) => nodes.get(name) ?? []) ?? []
    const receivedTasks = loads.reduce((sum, one) => sum + one.taken, 0)
    const isBusy = this.readyAt === null || loads.some((one) => one.isBusy)
    const isIdle = !isBusy && receivedTasks === this.#receivedTasks
    const now = this.#options.clock.now()
    this.idleSince = isBusy ? null : isIdle ? (this.idleSince ?? now) : now
    this.#receivedTasks = receivedTasks
    if (receivedTasks > 0) this.hasRun = true
  }

  /** Ends a queued allocation now, and a running allocation when its tasks have ended. */
  release(): void {
    this.phase = 'ending'
    this.#abort.abort()
    this.#over.resolve(null)
  }

  /** Releases the allocation. Resolves when it has ended, or the scheduler does not answer. */
  close(): Promise<PilotEnd> {
    this.#closing.abort()
    this.release()
    return this.ended
  }

  async #run(): Promise<PilotEnd> {
    try {
      const reason = await this.#runJob()
      if (reason === null) return this.#toEnd('given back', '')
      const age = this.#options.clock.now() - (this.startedAt ?? this.submittedAt)
      const { hasRun, readyAt } = this
      const missed = this.#findMissedWork()
      return this.#toEnd(classifyEnd(age, this.#cause, { hasRun, readyAt, missed }), reason)
    } catch (error) {
      const isSilent = isNoAnswer(error)
      if (isSilent) this.#options.onSilent(messageOf(error))
      await this.#withdraw(error)
      if (!isSilent) return this.#toEnd('failed', messageOf(error))
      const kind = this.#jobId === null ? 'unanswered' : 'given back'
      return this.#toEnd(kind, messageOf(error))
    }
  }

  /** Cancels a job that could not be canceled before, or whose id is unknown. */
  async #withdraw(cause: unknown): Promise<void> {
    const { commands, clock } = this.#options
    const { signal } = this.#closing
    const jobId = this.#jobId
    const folder = this.#folder
    if (jobId !== null) {
      await poll({ delayMs: cancelIntervalMs }, () => this.#tryCancel(jobId), { clock, signal })
    } else if (folder !== null && mayHaveSubmitted(cause)) {
      await runWithDeadline(signal, clock, (late) => {
        const options = { clock, timeoutMs: Infinity, signal: late }
        return withdrawRequest(folder, commands.withSignal(late), options)
      })
    }
  }

  async #tryCancel(jobId: string): Promise<boolean> {
    try {
      await this.#options.commands.run('scancel', '--quiet', jobId)
      return true
    } catch (error) {
      return !isNoAnswer(error)
    }
  }

  #toEnd(kind: PilotEnd['kind'], reason: string): PilotEnd {
    const { submittedAt, hasRun } = this
    const at = this.#options.clock.now()
    return { kind, reason, submittedAt, at, hasRun, missed: this.#findMissedWork() }
  }

  #findMissedWork(): readonly string[] {
    if (this.readyAt === null || this.hasRun) return []
    const waiting = this.#options.waiting()
    return this.work.filter((key) => waiting.has(key))
  }

  /** Runs the job. Resolves with the scheduler's reason for its end; `null` if it was released. */
  async #runJob(): Promise<string | null> {
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
      return await this.#runAgents(held)
    } finally {
      await held.close()
    }
  }

  async #runAgents({ allocation, jobId }: PlaceholderJob): Promise<string | null> {
    const { addAgents, removeAgents, clock, onChange } = this.#options
    // Set before the agents start, because the first agent may get tasks while others start.
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
      void this.#queryAfterAgents(allocation, agents)
      void agents.abandoned.then((why) => this.#over.resolve(why))
      const reason = await this.#over.promise
      this.phase = 'ending'
      await this.#drain(agents)
      return reason
    } finally {
      this.#watch?.close()
      await removeAgents(agents)
    }
  }

  /** Queries the scheduler for a while, because it reports the end of an allocation late. */
  async #queryAfterAgents(allocation: Allocation, agents: NodeAgents): Promise<void> {
    await agents.ended()
    const ask = async (): Promise<boolean> => {
      if (this.phase === 'running') await allocation.state({ isChanged: true }).catch(() => null)
      return this.phase !== 'running'
    }
    await poll({ delayMs: queryIntervalMs, maxAttempts: maxQueries }, ask, this.#options)
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

  /** Lets the agents finish. Tasks still running near the time limit are retried elsewhere. */
  async #drain(agents: NodeAgents): Promise<void> {
    const { clock, graceSeconds } = this.#options
    agents.drain()
    const waitMs = Math.max(
      0,
      Math.min(this.secondsLeft + graceSeconds, 1e6) * 1000 - closeBeforeEndMs,
    )
    await boundedWait(clock, waitMs, agents.ended()).catch(() => {})
  }
}
