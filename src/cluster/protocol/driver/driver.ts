/**
 * The driver of a session on a cluster as a state machine: what it is told goes in, what it wants
 * to be done comes out. It neither waits nor reads a clock.
 */

import type { BackendListener, Job } from '../../../backends/backend.ts'
import { BackendError } from '../../../foundation/errors.ts'
import type { Moment } from '../../../tasks/lifecycle.ts'
import type { AgentReport, AgentStart } from '../../wire/messages.ts'
import type { Handlers } from '../../wire/forms.ts'
import type { DriverInstruction, DriverStimulus } from './driver-interface.ts'
import { DriverJobs, type PlacementParts } from './driver-jobs.ts'
import { type ClusterLoad, toLoad, toWaitingWork } from '../placement/placement-state.ts'
import { ReceivedResults } from './received-results.ts'
import { type DriverJob, type RemoteAgent, toReference } from './remote-agent.ts'
import { SessionAgents } from './session-agents.ts'
import {
  type KnownAgents,
  UnplaceableJobs,
  type UnplaceableJobsOptions,
} from './unplaceable-jobs.ts'

export interface DriverOptions
  extends Omit<UnplaceableJobsOptions, 'secondsLeft'>, Omit<PlacementParts, 'agents'> {
  readonly known: KnownAgents
  readonly lossSeconds: number
}

/** How long a new run waits until the agents that are there can get jobs. */
const firstAgentsTimeoutMs = 1000

/**
 * `waiting`: not the owner of the session yet. `returning`: what earlier starts of the driver have
 * left is not known yet. `closing`: every job ends canceled.
 */
type DriverState = 'waiting' | 'returning' | 'ready' | 'closing' | 'failed'

export class Driver {
  readonly #agents = new Map<string, RemoteAgent>()
  readonly #jobs: DriverJobs
  readonly #results: ReceivedResults
  readonly #sessionAgents: SessionAgents
  readonly #unplaceable: UnplaceableJobs
  #instructions: DriverInstruction[] = []
  #now: Moment = { monotonicMs: 0, wallSeconds: 0 }
  #state: DriverState = 'waiting'
  /** What is awaited before jobs are placed. Only a returning driver reads the stream. */
  #awaited: 'stream' | 'agents' | 'stream again' | 'first agents' = 'stream'
  #claimedMs = 0
  #isReturning = false
  #needsRoom = false
  #failure: Error | null = null
  #closeReason = ''
  readonly #handlers: Handlers<DriverStimulus, [nowMs: number]> = {
    message: ({ agent, message }, nowMs) => this.#sessionAgents.receive(agent, message, nowMs),
    submit: ({ jobs }) => this.#submit(jobs),
    'submit together': ({ jobs, options }, nowMs) => {
      for (const one of this.#jobs.addTogether(jobs, options, nowMs)) this.#accept(one)
      this.#placeSoon()
    },
    cancel: ({ job, reason }) => this.#cancel(job, reason),
    recorded: ({ jobs }) => this.#jobs.recorded.markRecorded(jobs),
    place: () => this.#placeJobs(),
    turn: () => this.#sessionAgents.sendCancels(),
    tick: () => this.#tick(),
    'agent joined': ({ agent }, nowMs) => this.#sessionAgents.join(agent, nowMs),
    'agent draining': ({ agent }) => this.#sessionAgents.drain(agent),
    'agent lost': ({ agent, reason }) => this.#sessionAgents.loseStart(agent, reason),
    attached: ({ link, answer }, nowMs) => this.#sessionAgents.handleAnswer(link, answer, nowMs),
    'not attached': ({ link, problem }) => this.#sessionAgents.handleProblem(link, problem),
    'agent recorded': ({ agent }, nowMs) => this.#sessionAgents.handleRecorded(agent, nowMs),
    'parts read': ({ parts, isLost }) => {
      this.#results.handleParts(parts, isLost)
      this.#placeSoon()
    },
    claimed: ({ driverStart, links, earlier }) => this.#claim(driverStart, links, earlier),
    'stored results': ({ agent, messages }) => {
      if (agent === null) {
        for (const one of messages) this.#results.addStored(one)
        return this.#handleStreamRead()
      }
      this.#results.addStoredOf(agent, messages)
      this.#sessionAgents.finishLoss(agent)
    },
    unsendable: ({ one, error, isFinal }) => {
      const final = isFinal ? ({ isFinal: true } as const) : {}
      if (this.#jobs.has(one)) this.#jobs.end(one, { kind: 'fail', error, ...final }, null)
    },
    reconnected: (_, nowMs) => this.#sessionAgents.breakLinks(nowMs),
    failed: ({ error }) => this.#fail(error),
    close: ({ reason }) => this.#close(reason),
    closed: ({ reason }) => this.#endAll(reason),
  }

  constructor(options: DriverOptions) {
    const instruct = (instruction: DriverInstruction): void => {
      this.#instructions.push(instruction)
    }
    const listener: BackendListener = {
      report: (job, report) => instruct({ kind: 'report', job, report }),
      notice: (notice) => instruct({ kind: 'notice', notice }),
    }
    const agents = this.#agents
    this.#jobs = new DriverJobs(listener, () => this.#now, { ...options, agents })
    const jobs = this.#jobs
    this.#results = new ReceivedResults({ jobs, listener, instruct })
    this.#unplaceable = new UnplaceableJobs(jobs, options.known, options)
    this.#sessionAgents = new SessionAgents({
      jobs,
      results: this.#results,
      agents,
      lossSeconds: options.lossSeconds,
      instruct,
      onChange: () => this.#continueWaiting(),
      onReport: (agent, report) => this.#handleReport(agent, report),
    })
  }

  get load(): ClusterLoad {
    return toLoad(this.#jobs.placement)
  }

  /** The number of waiting jobs. */
  get waiting(): number {
    return this.#jobs.placement.waiting
  }

  /** The names of the agents that have a part in the session, or may get one. */
  get usedAgents(): readonly string[] {
    return [...this.#agents.values()].filter(({ link }) => link !== null).map(({ name }) => name)
  }

  find(job: Job): DriverJob | null {
    return this.#jobs.findEntry(job)
  }

  /** Must not be called again before it has returned. */
  advance(stimulus: DriverStimulus, now: Moment): readonly DriverInstruction[] {
    this.#now = now
    this.#instructions = []
    const handle: (one: never, nowMs: number) => void = this.#handlers[stimulus.kind]
    handle(stimulus as never, now.monotonicMs)
    return this.#instructions
  }

  #submit(jobs: readonly Job[]): void {
    const nowMs = this.#now.monotonicMs
    for (const job of jobs) this.#accept(this.#jobs.add(job, nowMs))
    this.#results.returned.reportMoved()
    this.#instructions.push({ kind: 'place soon', submitted: jobs.length })
  }

  #accept(one: DriverJob): void {
    if (this.#state === 'closing') {
      this.#jobs.end(one, { kind: 'cancel', reason: this.#closeReason }, null)
    } else if (this.#failure !== null) {
      this.#jobs.end(one, { kind: 'fail', error: this.#failure, isFinal: true }, null)
    } else if (this.#state !== 'ready' || !this.#results.returned.continueJob(one)) {
      this.#jobs.placement.push(one)
    }
  }

  #cancel(job: Job, reason: string): void {
    const one = this.#jobs.findEntry(job)
    if (one === null || one.cancelReason !== null) return
    one.cancelReason = reason
    if (one.isEnding) return
    if (one.agent === null) {
      this.#jobs.placement.remove(one)
      if (this.#state !== 'ready' || this.#isReturning)
        this.#results.returned.cancel(one.uid, reason)
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    } else if (one.isUnsent) {
      this.#instructions.push({ kind: 'abort sending', one })
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    } else one.agent.cancel(toReference(one), reason)
  }

  #claim(driverStart: number, links: number, earlier: readonly AgentStart[] | null): void {
    if (this.#state !== 'waiting') return
    this.#jobs.driverStart = driverStart
    this.#isReturning = earlier !== null
    this.#state = 'returning'
    this.#sessionAgents.claim(links, earlier ?? [], this.#now.monotonicMs)
    this.#claimedMs = this.#now.monotonicMs
    if (earlier === null) {
      this.#awaited = 'first agents'
      this.#checkAgents()
    } else this.#instructions.push({ kind: 'read results', agent: null })
  }

  /** The stream is read again when the agents have answered: some may have left meanwhile. */
  #handleStreamRead(): void {
    if (this.#awaited === 'stream again') return this.#begin()
    this.#awaited = 'agents'
    this.#checkAgents()
  }

  #checkAgents(): void {
    if (this.#state !== 'returning') return
    if (this.#awaited === 'first agents') {
      // Otherwise the first agent that answers would get more than its part of the jobs.
      const isLate = this.#now.monotonicMs - this.#claimedMs >= firstAgentsTimeoutMs
      if (isLate || !this.#sessionAgents.isAttaching) this.#begin()
      return
    }
    if (this.#awaited !== 'agents') return
    if (this.#sessionAgents.isAwaiting(this.#now.monotonicMs)) return
    this.#awaited = 'stream again'
    this.#instructions.push({ kind: 'read results', agent: null })
  }

  #begin(): void {
    if (this.#state !== 'returning') return
    this.#state = 'ready'
    this.#results.returned.continueInitialJobs()
    this.#placeSoon()
  }

  #placeSoon(): void {
    this.#instructions.push({ kind: 'place soon', submitted: 0 })
  }

  #continueWaiting(): void {
    if (this.#state === 'returning') this.#checkAgents()
    if (this.#state !== 'ready') return
    this.#results.returned.continueWaitingJobs()
    this.#placeSoon()
  }

  #placeJobs(): void {
    const { returned } = this.#results
    if (this.#state !== 'ready' || returned.isMatching) return
    returned.reportMoved()
    const nowMs = this.#now.monotonicMs
    for (const [name, jobs] of this.#jobs.placement.assign()) {
      const agent = this.#agents.get(name)
      if (agent === undefined) continue
      for (const one of jobs) this.#jobs.assign(one, agent, nowMs)
      this.#instructions.push({ kind: 'send jobs', agent, jobs })
    }
  }

  #handleReport(agent: RemoteAgent, report: AgentReport): void {
    const jobs = this.#jobs
    agent.offer = report.offer
    jobs.placement.setOffer(agent.name, report.offer)
    this.#needsRoom ||= report.needsRoom
    this.#results.addReport(agent, report)
    if (report.lostBundles.length > 0) {
      this.#instructions.push({ kind: 'drop bundles', digests: report.lostBundles })
    }
    const hasRefused = jobs.acceptReturned(agent, report.returned)
    if (hasRefused) this.#unplaceable.fail(this.#now.monotonicMs)
    this.#placeSoon()
  }

  /** The store of the broker is full: agents are asked to remove what is recorded. */
  makeRoom(): void {
    this.#needsRoom = true
  }

  #tick(): void {
    const nowMs = this.#now.monotonicMs
    if (this.#state === 'waiting' || this.#state === 'failed') return
    this.#sendBeat()
    this.#results.tick()
    this.#sessionAgents.tick(nowMs)
    this.#checkAgents()
    if (this.#state !== 'ready') return
    for (const [agent, jobs] of this.#jobs.findRecalled(nowMs)) {
      if (agent.state === 'attached' && jobs.length > 0) {
        this.#instructions.push({ kind: 'send', agent, message: { kind: 'recall', jobs } })
      }
    }
    this.#unplaceable.fail(nowMs)
    this.#placeSoon()
  }

  #sendBeat(): void {
    const work = toWaitingWork(this.#jobs.placement)
    const beat = { kind: 'beat', ...work, agents: this.#agents.size, needsRoom: this.#needsRoom }
    this.#needsRoom = false
    this.#instructions.push({ kind: 'send beat', beat: beat as { kind: 'beat' } & typeof beat })
  }

  #fail(error: Error): void {
    if (this.#failure !== null || this.#state === 'closing') return
    this.#failure = error
    this.#state = 'failed'
    this.#sessionAgents.close()
    this.#jobs.removeWaiting()
    const report = { kind: 'fail', error, isFinal: true } as const
    for (const one of this.#jobs.all) this.#jobs.end(one, report, null)
  }

  /** Waiting jobs end now. The others end when their agents have ended them. */
  #close(reason: string): void {
    if (this.#failure === null) this.#state = 'closing'
    this.#closeReason = 'backend closed'
    for (const one of this.#jobs.removeWaiting()) {
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    }
    this.#sessionAgents.close()
    for (const one of this.#jobs.all) one.cancelReason ??= reason
  }

  #endAll(reason: string): void {
    for (const one of this.#jobs.all) this.#jobs.end(one, { kind: 'cancel', reason }, null)
  }
}

/** The error of a driver that another process has replaced. */
export const supersededError = (sessionId: string): BackendError => {
  const text = `another process has continued session "${sessionId}"`
  return new BackendError(`${text} while this one was suspended or disconnected`, {
    code: 'SessionInUseError',
  })
}
