/** One session on the cluster: claims the session, attaches to agents, and sends jobs to them. */

import type { BackendListener, Job, SampledNode } from '../../backends/backend.ts'
import { catchErrors, type Clock, readMoment } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { retry } from '../../runtime/retry.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Broker } from '../broker/broker.ts'
import { SessionStream } from '../broker/session-stream.ts'
import { StoredObjects } from '../broker/stored-objects.ts'
import { deriveKeys, type Keys, seal } from '../wire/envelope.ts'
import { type AgentReport, type Heartbeat, isOutput } from '../wire/messages.ts'
import {
  newRunId,
  type SessionSubjects,
  sessionSubjects,
  type SessionUse,
} from '../wire/subjects.ts'
import type { AgentDirectory, KnownAgent } from './agent-directory.ts'
import type { DriverJob, GroupOptions, RemoteAgent } from '../protocol/remote-agent.ts'
import type { AgentLink } from './agent-link.ts'
import type { ClusterConnection, ClusterSettings } from './cluster-connection.ts'
import { ContinuedJobs } from '../protocol/continued-jobs.ts'
import { DriverJobs, type PlacementParts } from '../protocol/driver-jobs.ts'
import { EarlierRun } from '../protocol/earlier-run.ts'
import { ResultReceiver } from './result-receiver.ts'
import { JobSender } from './job-sender.ts'
import { PlacementTrigger } from './placement-trigger.ts'
import { type ClusterLoad, toLoad, toWaitingWork } from '../protocol/placement/placement-state.ts'
import { SentModules } from '../bundles/sent-modules.ts'
import { SessionAgents } from './session-agents.ts'
import { claimSession, waitUntilSilent } from './session-owner.ts'
import { NoAgentWatch } from './no-agent-watch.ts'

export interface DriverSessionOptions
  extends Omit<PlacementParts, 'agents'>, Pick<ClusterSettings, 'modules' | 'explainNoAgent'> {
  readonly use: SessionUse
  readonly listener: BackendListener
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly token: string
  readonly clock: Clock
  readonly log: Log
  readonly agentTimeoutSeconds: number
  readonly lossSeconds: number
  readonly ownerTtlSeconds: number
  readonly resultTtlSeconds: number
  readonly toNode: (agent: KnownAgent) => SampledNode
  /** Called when the session has released everything. */
  readonly onReleased: () => void
}

const tickIntervalMs = 500
const outputTimeoutMs = 5000

export class DriverSession implements ClusterConnection {
  readonly #options: DriverSessionOptions
  #keys: Keys
  /** The id of a new run. If a run exists when the session is claimed, its id replaces this one. */
  #run = newRunId()
  readonly #subjects: SessionSubjects
  /** 0 before the session is claimed. Agents obey the driver with the highest epoch. */
  #epoch = 0
  readonly #jobs: DriverJobs
  readonly #remoteAgents = new Map<string, RemoteAgent>()
  readonly #links = new Map<string, AgentLink>()
  readonly #agents: SessionAgents
  readonly #earlier = new EarlierRun()
  readonly #continued: ContinuedJobs
  readonly #results: ResultReceiver
  readonly #stream: SessionStream
  readonly #objects: StoredObjects
  readonly #modules: SentModules | null
  readonly #sender: JobSender
  readonly #noAgentWatch: NoAgentWatch
  readonly #trigger: PlacementTrigger
  readonly #unsubscribe: (() => void)[] = []
  #unlisten: () => void = () => {}
  #isReady = false
  #failure: Error | null = null
  #refusedMessages = 0
  #heartbeats = 0
  #needsRoom = false
  #cancelTick: () => void = () => {}
  readonly #started: Promise<void>

  constructor(rawOptions: DriverSessionOptions) {
    const onFailed = (error: unknown): void => this.#fail(error)
    const options = { ...rawOptions, clock: catchErrors(rawOptions.clock, onFailed) }
    const { token, use, listener, clock, broker, resultTtlSeconds } = options
    this.#options = options
    this.#trigger = new PlacementTrigger(clock, () => this.#placeJobs())
    this.#keys = deriveKeys(token, { ...use, run: this.#run })
    this.#subjects = sessionSubjects(use)
    const agents = this.#remoteAgents
    this.#jobs = new DriverJobs(listener, () => readMoment(clock), { agents, ...options })
    const { store } = broker
    const { stream, stored: subjects } = this.#subjects
    const run = (): string => this.#run
    const lifetime = { run, maxAgeSeconds: (): number => resultTtlSeconds }
    this.#stream = new SessionStream({ store, name: stream, subjects, ...lifetime })
    this.#objects = this.#createObjects()
    this.#modules = options.modules === 'bundle' ? new SentModules(this.#objects, clock) : null
    const earlierState = { earlier: this.#earlier, agents }
    const common = { jobs: this.#jobs, objects: this.#objects, clock, onFailed, ...earlierState }
    this.#sender = new JobSender({ ...common, broker, modules: this.#modules })
    const withUrl = { ...options, url: broker.url }
    this.#noAgentWatch = new NoAgentWatch(this.#jobs, options.directory, withUrl)
    this.#results = new ResultReceiver({
      key: () => this.#keys.toDriver,
      subjects: this.#subjects,
      store,
      links: this.#links,
      ...common,
      onEvents: (agent, report) => this.#continued.handleReport(agent, report),
      onEarlier: () => this.#continueWaiting(),
      onValueLost: (one, { attempt }) => this.#rerun(one, attempt),
      onRefused: (reason) => this.#refuseMessage(reason),
    })
    this.#continued = new ContinuedJobs({
      ...common,
      reportResult: (one, end, message) => this.#results.reportResult(one, end, null, message),
      listener,
      onSkipped: (agent, moved) => this.#agents.used.noteSkipped(agent, moved).catch(onFailed),
    })
    this.#agents = new SessionAgents({
      ...options,
      epoch: () => this.#epoch,
      keys: () => this.#keys,
      run,
      subjects: this.#subjects,
      jobs: this.#jobs,
      results: this.#results,
      stream: this.#stream,
      ...earlierState,
      links: this.#links,
      onChange: () => this.#continueWaiting(),
      onReport: (agent, report) => this.#handleReport(agent, report),
      onRefused: (reason) => this.#refuseMessage(reason),
      onFailed,
    })
    this.#started = this.#start().catch(onFailed)
  }

  #createObjects(): StoredObjects {
    const { broker, clock, log, use, agentTimeoutSeconds } = this.#options
    return new StoredObjects({
      ...this.#subjects,
      owner: `backend "${use.backend}"`,
      broker,
      clock,
      refusalTimeoutMs: () => agentTimeoutSeconds * 1000,
      openStream: () => this.#stream.open(),
      makeRoom: () => (this.#needsRoom = true),
      onProblem: ({ message }) => log.warn('ObjectNotStored', `${message}; it is sent again`),
    })
  }

  submit(jobs: readonly Job[]): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const job of jobs) this.#accept(this.#jobs.add(job, nowMs))
    this.#continued.reportMoved()
    this.#trigger.handleSubmit(jobs.length, this.#jobs.placement.waiting)
  }

  submitTogether(jobs: readonly Job[], options: GroupOptions): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const one of this.#jobs.addTogether(jobs, options, nowMs)) this.#accept(one)
    this.#trigger.schedule()
  }

  cancel(job: Job, reason: string): void {
    const one = this.#jobs.findEntry(job)
    if (one === null || one.cancelReason !== null) return
    one.cancelReason = reason
    if (one.isEnding) return
    if (one.agent === null) {
      this.#jobs.placement.remove(one)
      if (!this.#isReady || this.#results.hasEarlierStart) this.#earlier.cancel(one.uid, reason)
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    } else this.#sender.cancel(one, one.agent, reason)
  }

  async output(job: Job): Promise<ProgramOutput | null> {
    const one = this.#jobs.findEntry(job)
    if (one === null || one.agent === null) return null
    const { directory, use } = this.#options
    const { uid, wireAttempt: attempt } = one
    const request = { kind: 'output', ...use, run: this.#run, uid, attempt } as const
    const answer = await directory.request(one.agent.name, request, outputTimeoutMs)
    return isOutput(answer) ? answer : null
  }

  recorded(jobs: readonly Job[]): void {
    this.#jobs.recorded.markRecorded(jobs)
  }

  get load(): ClusterLoad {
    return toLoad(this.#jobs.placement)
  }

  readonly release = once(async (reason: string) => {
    await this.#releaseOnce(reason)
    this.#options.onReleased()
  })

  get #isOpen(): boolean {
    return this.#failure === null && !this.release.isCalled
  }

  #accept(one: DriverJob): void {
    if (this.release.isCalled) {
      this.#jobs.end(one, { kind: 'cancel', reason: 'backend closed' }, null)
    } else if (this.#failure !== null) {
      this.#jobs.end(one, { kind: 'fail', error: this.#failure, isFinal: true }, null)
    } else if (!this.#isReady || !this.#continued.continueJob(one)) this.#jobs.placement.push(one)
  }

  /** Claims the session. Retries for `agentTimeoutSeconds`: the broker may be restarting. */
  async #start(): Promise<void> {
    const { clock, agentTimeoutSeconds, directory } = this.#options
    // Listens before the session is claimed, because nodes that join before the claim are also
    // reported.
    this.#unlisten = directory.listen(this.#agents)
    const policy = { delayMs: tickIntervalMs, timeoutMs: agentTimeoutSeconds * 1000 }
    const mayRetry = (error: unknown): boolean => {
      this.#stop()
      return !(error instanceof BackendError)
    }
    const claim = async (): Promise<void> => (this.#isOpen ? this.#claim() : undefined)
    await retry(policy, claim, { clock, mayRetry }).catch((error: unknown) => this.#fail(error))
  }

  async #claim(): Promise<void> {
    const { broker, directory } = this.#options
    const { allResults, fromAllAgents } = this.#subjects
    const claimed = await claimSession({
      ...this.#options,
      stream: this.#stream,
      subjects: this.#subjects,
      isOpen: () => this.#isOpen,
      hasWaiting: () => this.#jobs.placement.waiting > 0,
    })
    const { isNew, noted } = claimed
    this.#epoch = claimed.epoch
    this.#keys = claimed.keys
    this.#run = claimed.run
    this.#unsubscribe.push(
      claimed.stop,
      broker.subscribe(allResults, ({ subject, data }) => {
        this.#results.receive(subject, data)
        this.#trigger.schedule()
      }),
      broker.subscribe(fromAllAgents, ({ subject, data }) => this.#agents.receive(subject, data)),
      broker.onConnection((isConnected) => {
        if (isConnected) this.#agents.reconnected()
      }),
    )
    this.#agents.earlier.setUsed(noted.used)
    if (this.release.isCalled) return
    this.#results.hasEarlierStart = !isNew
    if (!isNew) {
      // Added before the results are read, so that late results of given-up attempts do not count.
      this.#earlier.addLost(noted.lost)
      this.#earlier.addMoved(noted.moved)
      await this.#results.readStream(allResults)
      await Promise.all(noted.used.map(({ name }) => directory.locate(name)))
    }
    if (this.release.isCalled) return
    const attached = this.#agents.attachAll()
    // Starts to send heartbeats to the agents while waiting for their answers.
    this.#tick()
    await attached
    await this.#agents.earlier.reportMissingAgents(noted)
    // An agent may have ended its part of the session while the connection was down. It then has a
    // new part, and only the stream has the results of the old one.
    if (!isNew) await this.#results.readStream(allResults)
    if (!this.#isOpen) return
    this.#isReady = true
    this.#continued.continueInitialJobs()
    this.#trigger.schedule()
  }

  #fail(cause: unknown): void {
    if (!this.#isOpen) return
    const error = cause instanceof Error ? cause : new BackendError(messageOf(cause))
    this.#failure = error
    this.#agents.close()
    this.#unlisten()
    this.#stop()
    this.#jobs.removeWaiting()
    const report = { kind: 'fail', error, isFinal: true } as const
    for (const one of this.#jobs.all) this.#jobs.end(one, report, null)
    this.#objects.close()
    this.#agents.used.removeIfUnowned().catch(() => {})
  }

  #stop(): void {
    this.#cancelTick()
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe()
  }

  /** Runs a task again: an earlier start of the driver has deleted the task's value. */
  #rerun(one: DriverJob, attempt: number): void {
    this.#continued.rerun(one, attempt)
    this.#trigger.schedule()
  }

  #continueWaiting(): void {
    if (!this.#isReady) return
    this.#continued.continueWaitingJobs()
    this.#trigger.schedule()
  }

  #placeJobs(): void {
    if (!this.#isOpen || !this.#isReady) return
    if (this.#continued.isMatching) return
    this.#continued.reportMoved()
    if (this.#agents.used.isNoting) return
    const placed = this.#jobs.placement.assign()
    if (placed.size === 0) return
    const nowMs = this.#options.clock.monotonicMs()
    for (const [name, jobs] of placed) {
      const link = this.#links.get(name)
      if (link === undefined) continue
      for (const one of jobs) this.#jobs.assign(one, link.agent, nowMs)
      this.#sender.send(link, jobs)
    }
  }

  #handleReport(agent: RemoteAgent, report: AgentReport): void {
    const jobs = this.#jobs
    jobs.placement.setOffer(agent.name, report.offer)
    agent.results.sent = report.endMessages
    this.#needsRoom ||= report.needsRoom
    this.#continued.handleReport(agent, report)
    this.#modules?.dropLost(report.lostBundles)
    const hasRefused = jobs.acceptReturned(agent, report.returned)
    if (hasRefused) this.#noAgentWatch.failUnplaceable(this.#options.clock.monotonicMs())
    this.#trigger.schedule()
  }

  #tick(): void {
    const { clock } = this.#options
    this.#cancelTick = clock.after(tickIntervalMs, () => this.#tick(), { background: true })
    const nowMs = clock.monotonicMs()
    this.#sendHeartbeat()
    this.#agents.tick(nowMs)
    if (!this.#isReady) return
    for (const [{ name }, jobs] of this.#jobs.findRecalled(nowMs))
      this.#links.get(name)?.recall(jobs)
    this.#noAgentWatch.failUnplaceable(nowMs)
    this.#trigger.schedule()
  }

  #sendHeartbeat(): void {
    const { heartbeat: subject } = this.#subjects
    const { hasStream, lostStreams } = this.#agents.used
    const stream = { hasStream, lostStreams, needsRoom: this.#needsRoom }
    this.#needsRoom = false
    const work = toWaitingWork(this.#jobs.placement)
    const beat: Heartbeat = { kind: 'beat', ...work, agents: this.#links.size, ...stream }
    const header = { epoch: this.#epoch, number: ++this.#heartbeats, acknowledged: 0 }
    this.#options.broker.publish(subject, seal(this.#keys.toAgent, subject, header, beat))
  }

  #refuseMessage(reason: string): void {
    if (this.#refusedMessages++ > 0) return
    const text = `a message of an agent was refused: ${reason}; further ones are counted`
    this.#options.log.warn('MessageRefused', text)
  }

  /** Removes the session's data and ends its jobs. Only warns if the broker does not answer. */
  async #releaseOnce(reason: string): Promise<void> {
    const { broker, clock, log, ownerTtlSeconds, resultTtlSeconds } = this.#options
    const done = new AbortController()
    const silent = waitUntilSilent(broker, this.#subjects, clock, done.signal)
    const removed = this.#removeAll(reason, done.signal).then(() => false)
    const isBrokerSilent = await Promise.race([removed, silent])
    done.abort()
    this.#endAllJobs(reason)
    if (!isBrokerSilent) return
    const result = `agents end its tasks after ${ownerTtlSeconds} s, and a later driver removes its`
    log.warn(
      'SessionNotRemoved',
      `the broker at ${broker.url} does not answer, so session "${this.#options.use.sessionId}" ` +
        `is not removed: ${result} results after ${resultTtlSeconds} s`,
    )
  }

  async #removeAll(reason: string, signal: AbortSignal): Promise<void> {
    for (const one of this.#jobs.removeWaiting())
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    this.#agents.close()
    // Waits for `#start`, which would otherwise recreate the data that is removed here.
    await this.#started
    // The stored data belongs to the driver that owns the session. That may be another driver.
    if (this.#failure !== null || this.#epoch === 0) return this.#agents.used.removeIfUnowned()
    for (const one of this.#jobs.all) one.cancelReason ??= reason
    const isOwn = await this.#agents.detach(reason)
    this.#endAllJobs(reason)
    await this.#stream.close()
    if (!isOwn) return
    try {
      await this.#stream.remove(this.#options.clock)
    } catch (error) {
      if (signal.aborted) return
      const { use, broker, log } = this.#options
      const text = `the stream of session "${use.sessionId}" at ${broker.url} could not be removed`
      log.warn('StreamNotRemoved', `${text}: ${messageOf(error)}`)
    }
  }

  #endAllJobs(reason: string): void {
    for (const one of this.#jobs.all) this.#jobs.end(one, { kind: 'cancel', reason }, null)
    this.#objects.close()
    this.#unlisten()
    this.#stop()
  }
}
