/** One session's use of the cluster: claims the session, attaches to agents, sends jobs. */

import type { BackendListener, Job, SampledNode } from '../../backends/backend.ts'
import { catchErrors, type Clock } from '../../foundation/clock.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { once } from '../../foundation/service.ts'
import { retry } from '../../runtime/retry.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Broker } from '../broker/broker.ts'
import { SessionStream } from '../broker/session-stream.ts'
import { StoredObjects } from '../broker/stored-objects.ts'
import { deriveKeys, type Keys, seal } from '../wire/envelope.ts'
import { isOutput } from '../wire/message-forms.ts'
import type { AgentReport, Beat } from '../wire/messages.ts'
import { newRun, type SessionSubjects, sessionSubjects, type SessionUse } from '../wire/subjects.ts'
import type { AgentDirectory, KnownAgent } from './directory/agent-directory.ts'
import type { AgentLink, DriverJob } from './agent-link.ts'
import type { ClusterConnection, ClusterSettings, GroupOptions } from './cluster-connection.ts'
import { ContinuedJobs } from './earlier/continued-jobs.ts'
import { DriverJobs, type JobPlaces } from './jobs/driver-jobs.ts'
import { EarlierRun } from './earlier/earlier-run.ts'
import { EndReceiver } from './end-receiver.ts'
import { JobSender } from './job-sender.ts'
import { PlacementTrigger } from './placement/placement-trigger.ts'
import { type ClusterLoad, toLoad, toWaitingWork } from './placement/placement-state.ts'
import { SentModules } from '../bundles/sent-modules.ts'
import { SessionAgents } from './session-agents.ts'
import { claimSession, untilSilent } from './session-owner.ts'
import { NoAgentWatch } from './no-agent-watch.ts'

export interface DriverSessionOptions
  extends Omit<JobPlaces, 'links'>, Pick<ClusterSettings, 'modules' | 'whyNone'> {
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
  /** Converts an agent to the node that is reported to sessions. */
  readonly toNode: (agent: KnownAgent) => SampledNode
}

const tickMs = 500
/** How long an agent may take to return a program's output. */
const outputMs = 5000

export class DriverSession implements ClusterConnection {
  readonly #options: DriverSessionOptions
  /** The keys of the session's run. */
  #keys: Keys
  /** A new run, or the existing one that was found when the session was claimed. */
  #run = newRun()
  readonly #subjects: SessionSubjects
  /** The driver's epoch. Agents prefer the highest. 0 before the session is claimed. */
  #epoch = 0
  readonly #jobs: DriverJobs
  readonly #links = new Map<string, AgentLink>()
  readonly #agents: SessionAgents
  readonly #earlier = new EarlierRun()
  readonly #continued: ContinuedJobs
  readonly #ends: EndReceiver
  readonly #stream: SessionStream
  readonly #objects: StoredObjects
  readonly #modules: SentModules | null
  readonly #sender: JobSender
  readonly #noAgents: NoAgentWatch
  readonly #trigger: PlacementTrigger
  readonly #unsubscribe: (() => void)[] = []
  #isReady = false
  #failure: Error | null = null
  #refusedMessages = 0
  #beats = 0
  /** Whether the store has been full since the last heartbeat. */
  #needsRoom = false
  #cancelTick: () => void = () => {}
  readonly #started: Promise<void>

  constructor(given: DriverSessionOptions) {
    const onFailed = (error: unknown): void => this.#fail(error)
    const options = { ...given, clock: catchErrors(given.clock, onFailed) }
    const { token, use, listener, clock, broker } = options
    this.#options = options
    this.#trigger = new PlacementTrigger(clock, () => this.#place())
    this.#keys = deriveKeys(token, { ...use, run: this.#run })
    this.#subjects = sessionSubjects(use)
    this.#jobs = new DriverJobs(listener, clock, { links: this.#links, ...options })
    const { store } = broker
    const { stream, stored: subjects } = this.#subjects
    const maxAgeSeconds = (): number => options.resultTtlSeconds
    const run = (): string => this.#run
    this.#stream = new SessionStream({ store, name: stream, subjects, run, maxAgeSeconds })
    this.#objects = this.#createObjects()
    this.#modules = options.modules === 'bundle' ? new SentModules(this.#objects, clock) : null
    const left = { earlier: this.#earlier, agents: this.#links }
    const common = { jobs: this.#jobs, objects: this.#objects, clock, onFailed, ...left }
    this.#sender = new JobSender({ ...common, broker, modules: this.#modules })
    const { url } = broker
    this.#noAgents = new NoAgentWatch(this.#jobs, options.directory, { ...options, url })
    this.#ends = new EndReceiver({
      key: () => this.#keys.toDriver,
      subjects: this.#subjects,
      store,
      ...common,
      onEvents: (agent, report) => this.#continued.takeReport(agent, report, this.#jobs.readTime()),
      onEarlier: () => this.#continueWaiting(),
      // An earlier start has read and deleted the value, so the task runs again.
      onValueLost: (one, { attempt }) => {
        this.#continued.runAgain(one, attempt)
        this.#trigger.soon()
      },
      onRefused: (reason) => this.#refuseMessage(reason),
    })
    this.#continued = new ContinuedJobs({
      ...common,
      takeEnd: (one, end, message) => this.#ends.takeEnd(one, end, null, message),
      listener,
      onSkipped: (agent, moved) => this.#agents.used.skip(agent, moved).catch(onFailed),
    })
    this.#agents = new SessionAgents({
      ...options,
      epoch: () => this.#epoch,
      keys: () => this.#keys,
      run,
      subjects: this.#subjects,
      jobs: this.#jobs,
      ends: this.#ends,
      stream: this.#stream,
      earlier: this.#earlier,
      links: this.#links,
      onChange: () => this.#continueWaiting(),
      onReport: (link, report) => this.#takeReport(link, report),
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
      patienceMs: () => agentTimeoutSeconds * 1000,
      openStream: () => this.#stream.open(),
      makeRoom: () => (this.#needsRoom = true),
      onProblem: ({ message }) => log.warn('ObjectNotStored', `${message}; it is sent again`),
    })
  }

  submit(jobs: readonly Job[]): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const job of jobs) this.#accept(this.#jobs.add(job, nowMs))
    this.#continued.reportMoved()
    this.#trigger.submitted(jobs.length, this.#jobs.placement.waiting)
  }

  submitTogether(jobs: readonly Job[], options: GroupOptions): void {
    const nowMs = this.#options.clock.monotonicMs()
    for (const one of this.#jobs.addTogether(jobs, options, nowMs)) this.#accept(one)
    this.#trigger.soon()
  }

  cancel(job: Job, reason: string): void {
    const one = this.#jobs.findOwn(job)
    if (one === null || one.cancelReason !== null) return
    one.cancelReason = reason
    if (one.isEnding) return
    if (one.agent === null) {
      this.#jobs.placement.remove(one)
      if (!this.#isReady || this.#ends.hasEarlierStart) this.#earlier.cancel(one.uid, reason)
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    } else this.#sender.cancel(one, one.agent, reason)
  }

  async output(job: Job): Promise<ProgramOutput | null> {
    const one = this.#jobs.findOwn(job)
    if (one === null || one.agent === null) return null
    const { directory, use } = this.#options
    const { uid, wireAttempt: attempt } = one
    const request = { kind: 'output', ...use, run: this.#run, uid, attempt } as const
    const answer = await directory.request(one.agent.name, request, outputMs)
    return isOutput(answer) ? (answer as ProgramOutput) : null
  }

  recorded(jobs: readonly Job[]): void {
    this.#jobs.recorded.recorded(jobs)
  }

  get load(): ClusterLoad {
    return toLoad(this.#jobs.placement)
  }

  readonly release = once((reason: string) => this.#releaseOnce(reason))

  get #isOpen(): boolean {
    return this.#failure === null && !this.release.isCalled
  }

  #accept(one: DriverJob): void {
    if (this.release.isCalled) {
      this.#jobs.end(one, { kind: 'cancel', reason: 'backend closed' }, null)
    } else if (this.#failure !== null) {
      this.#jobs.end(one, { kind: 'fail', error: this.#failure, isFinal: true }, null)
    } else if (!this.#isReady || !this.#continued.continue(one)) this.#jobs.placement.push(one)
  }

  /** Retries for as long as tasks wait for agents, because the broker may be restarting. */
  async #start(): Promise<void> {
    const { clock, agentTimeoutSeconds } = this.#options
    const policy = { delayMs: tickMs, timeoutMs: agentTimeoutSeconds * 1000 }
    const mayRetry = (error: unknown): boolean => {
      this.#stop()
      return !(error instanceof BackendError)
    }
    const claim = async (): Promise<void> => (this.#isOpen ? this.#claim() : undefined)
    await retry(policy, claim, { clock, mayRetry }).catch((error: unknown) => this.#fail(error))
  }

  /** Claims the session, reads the data of an earlier start, and attaches to the agents. */
  async #claim(): Promise<void> {
    const { broker, directory } = this.#options
    const { allEnds, allUp } = this.#subjects
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
      broker.subscribe(allEnds, ({ subject, data }) => {
        this.#ends.take(subject, data)
        this.#trigger.soon()
      }),
      broker.subscribe(allUp, ({ subject, data }) => this.#agents.receive(subject, data)),
      broker.onConnection((isConnected) => {
        if (isConnected) this.#agents.reconnected()
      }),
    )
    this.#agents.earlier.expect(noted.used)
    if (this.release.isCalled) return
    this.#unsubscribe.push(directory.listen(this.#agents))
    this.#ends.hasEarlierStart = !isNew
    if (!isNew) {
      // Before the results, because a late result of an attempt that was given up does not count.
      this.#earlier.addLost(noted.lost)
      this.#earlier.addMoved(noted.moved)
      await this.#ends.readStream(allEnds)
      await Promise.all(noted.used.map(({ name }) => directory.locate(name)))
    }
    if (this.release.isCalled) return
    const attached = this.#agents.attachAll()
    // Sends heartbeats to the agents while waiting for their answers.
    this.#tick()
    await attached
    await this.#agents.earlier.noteOthersMissing(noted)
    if (!this.#isOpen) return
    this.#isReady = true
    this.#continued.continueFirst()
    this.#trigger.soon()
  }

  /**
   * Called when the session cannot be used, or a later start has taken over and owns the stored
   * data.
   */
  #fail(cause: unknown): void {
    if (!this.#isOpen) return
    const error = cause instanceof Error ? cause : new BackendError(messageOf(cause))
    this.#failure = error
    this.#agents.close()
    this.#stop()
    this.#jobs.takeWaiting()
    const report = { kind: 'fail', error, isFinal: true } as const
    for (const one of this.#jobs.all) this.#jobs.end(one, report, null)
    this.#objects.close()
    this.#agents.used.leave().catch(() => {})
  }

  #stop(): void {
    this.#cancelTick()
    for (const unsubscribe of this.#unsubscribe.splice(0)) unsubscribe()
  }

  #continueWaiting(): void {
    if (!this.#isReady) return
    this.#continued.continueWaiting()
    this.#trigger.soon()
  }

  #place(): void {
    if (!this.#isOpen || !this.#isReady) return
    if (this.#continued.isBusy) return
    this.#continued.reportMoved()
    if (this.#agents.used.isNoting) return
    const placed = this.#jobs.placement.assign()
    if (placed.size === 0) return
    const nowMs = this.#options.clock.monotonicMs()
    for (const [name, jobs] of placed) {
      const agent = this.#links.get(name)
      if (agent === undefined) continue
      for (const one of jobs) this.#jobs.assign(one, agent, nowMs)
      this.#sender.send(agent, jobs)
    }
  }

  #takeReport(agent: AgentLink, report: AgentReport): void {
    const jobs = this.#jobs
    jobs.placement.setOffer(agent.name, report.offer)
    agent.endMessages = report.endMessages
    this.#needsRoom ||= report.needsRoom
    const now = jobs.readTime()
    this.#continued.takeReport(agent, report, now)
    this.#modules?.forget(report.lostBundles)
    const hasRefused = jobs.takeBack(agent, report.returned)
    if (hasRefused) this.#noAgents.failUnplaceable(now.monotonicMs)
    this.#trigger.soon()
  }

  #tick(): void {
    const { clock } = this.#options
    this.#cancelTick = clock.after(tickMs, () => this.#tick(), { background: true })
    const nowMs = clock.monotonicMs()
    this.#beat()
    this.#agents.tick(nowMs)
    if (!this.#isReady) return
    this.#jobs.recallWaiting()
    this.#noAgents.failUnplaceable(nowMs)
    this.#trigger.soon()
  }

  #beat(): void {
    const { beat: subject } = this.#subjects
    const { hasStream, lostStreams } = this.#agents.used
    const stream = { hasStream, lostStreams, needsRoom: this.#needsRoom }
    this.#needsRoom = false
    const work = toWaitingWork(this.#jobs.placement)
    const beat: Beat = { kind: 'beat', ...work, agents: this.#links.size, ...stream }
    const header = { epoch: this.#epoch, number: ++this.#beats, acknowledged: 0 }
    this.#options.broker.publish(subject, seal(this.#keys.toAgent, subject, header, beat))
  }

  #refuseMessage(reason: string): void {
    if (this.#refusedMessages++ > 0) return
    const text = `a message of an agent was refused: ${reason}; further ones are counted`
    this.#options.log.warn('MessageRefused', text)
  }

  /** Does not wait for a broker that does not answer, because nothing could be removed there. */
  async #releaseOnce(reason: string): Promise<void> {
    const { broker, clock, log, ownerTtlSeconds, resultTtlSeconds } = this.#options
    const done = new AbortController()
    const silent = untilSilent(broker, this.#subjects, clock, done.signal)
    const removed = this.#removeAll(reason, done.signal).then(() => false)
    const isLeft = await Promise.race([removed, silent])
    done.abort()
    this.#endAll(reason)
    if (!isLeft) return
    const kept = `agents end its tasks after ${ownerTtlSeconds} s, and a later driver removes its`
    log.warn(
      'SessionNotRemoved',
      `the broker at ${broker.url} does not answer, so session "${this.#options.use.sessionId}" ` +
        `is not removed: ${kept} results after ${resultTtlSeconds} s`,
    )
  }

  async #removeAll(reason: string, signal: AbortSignal): Promise<void> {
    for (const one of this.#jobs.takeWaiting())
      this.#jobs.end(one, { kind: 'cancel', reason }, null)
    this.#agents.close()
    // Otherwise, `#start` would recreate the data that is removed here.
    await this.#started
    // The stored data belongs to the driver that owns the session, which may be another one.
    if (this.#failure !== null || this.#epoch === 0) return this.#agents.used.leave()
    for (const one of this.#jobs.all) one.cancelReason ??= reason
    const isOwn = await this.#agents.detach(reason)
    this.#endAll(reason)
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

  #endAll(reason: string): void {
    for (const one of this.#jobs.all) this.#jobs.end(one, { kind: 'cancel', reason }, null)
    this.#objects.close()
    this.#stop()
  }
}
