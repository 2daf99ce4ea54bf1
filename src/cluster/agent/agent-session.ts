/** One session on an agent. Holds the session's jobs until the broker has their results. */

import {
  type BackendListener,
  type Job,
  type Notice,
  type TaskReport,
  toEventNotice,
} from '../../backends/backend.ts'
import type { LocalConnection } from '../../backends/local/concurrent-backend.ts'
import { BackendThrottled } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { once } from '../../foundation/service.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Broker } from '../broker/broker.ts'
import type { ResultReport } from '../wire/results.ts'
import { type Keys, newEpoch } from '../wire/envelope.ts'
import { payloadLimit, unpackJobs } from '../wire/job-batches.ts'
import {
  maxSilenceMs,
  type AgentStart,
  type Attach,
  type DriverMessage,
  type JobReference,
  type NotAllowed,
  type Offer,
  type SentJob,
  type WireJob,
} from '../wire/messages.ts'
import { type SessionSubjects, sessionSubjects, toSessionUseId } from '../wire/subjects.ts'
import { DriverLink } from './driver-link.ts'
import { ResultOutbox } from './result-outbox.ts'
import { HeldAttempt, HeldAttempts } from './held-attempt.ts'
import { SessionModules } from './session-modules.ts'
import { SessionReports } from './session-reports.ts'
import { ArrivingSpecs, SessionStore } from './session-store.ts'
import type { UnpackedBundles } from '../bundles/unpacked-bundles.ts'
import { SessionFolder, type WorkFolder } from './work-folder.ts'

export interface AgentSessionOptions {
  readonly attach: Attach
  readonly self: AgentStart
  readonly deriveKeys: (attach: Attach) => Keys
  readonly cluster: Keys
  readonly broker: Broker
  readonly clock: Clock
  /** The parent of temporary folders, for sessions whose working folder is not on this node. */
  readonly folder: WorkFolder
  readonly bundles: UnpackedBundles
  readonly connect: (listener: BackendListener) => LocalConnection
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  readonly offer: (session: AgentSession) => Offer
  readonly onArrival: () => void
  /** Called when a job has been queued or resources have become free. */
  readonly onChange: () => void
  readonly onRefusedMessage: (reason: string) => void
  /** Called if the broker's store failed to store results or to return a task's spec. */
  readonly onStoreProblem: (error: unknown) => void
  /** Called with an unexpected error. The session cannot continue after it. */
  readonly onFailed: (error: unknown) => void
  readonly onDroppedEvent: (why: string) => void
}

export class AgentSession implements BackendListener {
  /** Identifies the session and the backend of its driver. */
  readonly id: string
  readonly subjects: SessionSubjects
  /** Identifies this `AgentSession`. Its messages with results are numbered from 1. */
  readonly endsEpoch: number
  readonly outbox: ResultOutbox
  readonly driver: DriverLink
  readonly held: HeldAttempts
  readonly #options: AgentSessionOptions
  readonly #connection: LocalConnection
  readonly #store: SessionStore
  readonly #folder: SessionFolder
  #attach: Attach
  #keys: Keys
  #sequence = 0
  readonly #reports: SessionReports
  readonly #modules: SessionModules
  readonly #arrivingSpecs: ArrivingSpecs
  #isDraining = false

  constructor(options: AgentSessionOptions) {
    const { attach, self, broker, clock } = options
    const keys = (): Keys => this.#keys
    this.#options = options
    this.#attach = attach
    this.#keys = options.deriveKeys(attach)
    this.id = toSessionUseId(attach)
    this.endsEpoch = newEpoch()
    this.subjects = sessionSubjects(attach)
    this.held = new HeldAttempts(clock, () => this.driver.hasWaiting)
    this.#folder = new SessionFolder(options.folder, this.subjects.stream, self.name)
    this.#store = new SessionStore({
      ...options,
      subjects: this.subjects,
      keys,
      run: () => this.#attach.run,
      resultTtlSeconds: () => this.#attach.resultTtlSeconds,
      refusalTimeoutMs: () => this.#attach.agentTimeoutSeconds * 1000,
      isRecorded: (message) => this.outbox.isRecorded(message),
      onProblem: (error) => this.outbox.block(error),
    })
    const { objects } = this.#store
    this.#arrivingSpecs = new ArrivingSpecs(objects)
    this.#modules = new SessionModules({ ...options, objects, sessionId: this.id })
    this.#connection = options.connect(this)
    this.outbox = new ResultOutbox({
      ...options,
      agent: self.name,
      epoch: this.endsEpoch,
      key: () => this.#keys.toDriver,
      subject: this.subjects.agentResults(self.name),
      store: this.#store,
      ahead: () => options.offer(this).ahead,
      isDriverHeard: () => this.driver.isHeard,
      onFlush: () => this.#reports.sendEvents(),
      unconfirmedMark: () => this.driver.unconfirmedMark,
      restorePaths: (text) => options.bundles.restorePaths(text),
      onProblem: (error) => this.#throttle(error),
    })
    this.#reports = new SessionReports({
      clock,
      header: () => ({ offer: options.offer(this), ...this.outbox.state }),
      limitBytes: () => payloadLimit(broker.maxPayload),
      link: () => this.driver,
      onDropped: options.onDroppedEvent,
    })
    this.driver = new DriverLink(
      {
        ...options,
        agent: self.name,
        subjects: this.subjects,
        keys,
        onMessage: (message) => this.#handleMessage(message),
        onHeartbeat: (beat) => this.outbox.handleHeartbeat(beat),
        onRefused: options.onRefusedMessage,
      },
      attach,
    )
  }

  get run(): string {
    return this.#attach.run
  }

  /** Whether the session has jobs to begin. Only active sessions get a share of the node. */
  get isActive(): boolean {
    return this.held.queued > 0 || this.driver.hasWaiting
  }

  /** Whether `end` has been called. A driver that attaches now gets a new `AgentSession`. */
  get isEnding(): boolean {
    return this.end.isCalled
  }

  reattach(attach: Attach): void {
    const isLater = attach.epoch !== this.driver.epoch
    const isAnotherRun = attach.run !== this.#attach.run
    this.#attach = attach
    if (isAnotherRun) {
      this.#keys = this.#options.deriveKeys(attach)
      this.outbox.updateSignatures()
    }
    // A restarted driver resends the jobs that it still needs, possibly with changes.
    if (isLater) this.#returnAllJobs()
    const unconfirmed = this.driver.attach(attach)
    // If the driver is the same, it has given up this agent's tasks and does not need the
    // unconfirmed events.
    this.#reports.restart(isLater ? unconfirmed : [], (uid) => this.held.latestAttempt(uid) > 0)
  }

  /** Called every half second. Returns `true` if the session's driver is gone for good. */
  tick(nowMs: number): boolean {
    this.driver.tick()
    this.#reports.send()
    // If no attempt has ended recently, takes waiting attempts back from the backend: another node
    // may begin them sooner.
    if (this.held.isStalled) this.#withdraw()
    const excess = this.held.findExcess(this.#options.offer(this).ahead, this.driver)
    this.#returnJobs(excess)
    if (excess.length > 0) this.#options.onChange()
    return nowMs - this.driver.lastHeardMs > this.#attach.ownerTtlSeconds * 1000
  }

  reconnected(): void {
    this.driver.handleReconnect()
    this.outbox.resend()
  }

  /** Submits queued jobs, but none while the driver is silent. Returns how many cores they use. */
  begin(maxCores: number): number {
    if (this.isEnding || this.outbox.isBlocked || this.outbox.isFull) return 0
    if (this.#options.clock.monotonicMs() - this.driver.lastHeardMs > maxSilenceMs) return 0
    try {
      const { jobs, cores } = this.held.takeFromQueue(maxCores)
      if (jobs.length > 0) this.#connection.submit(jobs)
      return cores
    } catch (error) {
      this.#options.onFailed(error)
      return 0
    }
  }

  async output(uid: string, attempt: number): Promise<ProgramOutput | null> {
    const held = this.held.get(uid)
    if (held?.attempt !== attempt) return null
    return (await this.#connection.output?.(held)) ?? null
  }

  /** Returns to the driver all jobs that have not begun, including those that arrive later. */
  drain(): void {
    this.#isDraining = true
    this.#returnAllJobs()
  }

  report(job: Job, report: TaskReport): void {
    if (!(job instanceof HeldAttempt)) return
    try {
      this.#handleReport(job, report)
    } catch (error) {
      this.#options.onFailed(error)
    }
  }

  #handleReport(job: HeldAttempt, report: TaskReport): void {
    if (!job.isHeld && report.kind !== 'start') this.#releaseCores(job)
    if (!job.isHeld) return
    const atMs = report.at?.monotonicMs ?? this.#options.clock.monotonicMs()
    if (report.kind === 'start') {
      job.beganMs = atMs
      job.workerId = report.workerId
      job.files = report.facts ?? null
      this.#reports.addStart(job)
      return
    }
    this.#end(job, this.#modules.addNodeName(report, job.spec), atMs)
  }

  notice(notice: Notice): void {
    if (notice.kind !== 'event') return
    const { taskId } = notice
    try {
      this.#reports.addEvent(notice, taskId === null ? undefined : this.held.get(taskId))
    } catch (error) {
      this.#options.onFailed(error)
    }
  }

  limitWait(): void {
    this.outbox.setSettleTimeout(this.#attach.ownerTtlSeconds * 1000)
  }

  /** Cancels all jobs. With `isAbandoned`, waits until the stream has all results. */
  readonly end = once(async (reason: string, isAbandoned: boolean): Promise<void> => {
    for (const held of this.held.waiting) this.#cancelWaiting(held, reason)
    try {
      await this.#connection.release(reason)
      if (isAbandoned) {
        await this.driver.settle()
        this.outbox.addEvents(this.driver.unconfirmedEvents)
        await this.#store.settle(this.outbox, this.driver.epoch, this.endsEpoch)
      }
    } finally {
      this.outbox.close()
      this.driver.close()
      await this.#store.close()
      await Promise.all([this.#folder.remove(), this.#modules.release()])
    }
  })

  /**
   * Reports that the broker does not store results. No further attempts begin until it stores them.
   */
  #throttle(error: unknown): void {
    if (this.outbox.isBlocked) return
    const reason = `the broker does not store results: ${messageOf(error)}`
    this.notice(toEventNotice(BackendThrottled, { reason, limit: 0 }))
    this.#options.onStoreProblem(error)
  }

  #handleMessage(message: DriverMessage): void {
    if (message.kind === 'cancel') this.#cancel(message.jobs, message.reason)
    else if (message.kind === 'recall') {
      this.#withdraw()
      this.#returnJobs(message.jobs.map(([uid]) => this.held.get(uid)))
    } else if (message.kind === 'recorded') {
      for (const uid of this.outbox.markRecorded(message)) this.held.markRecorded(uid)
      this.#options.onChange()
    } else if (message.kind === 'missing') this.outbox.resendMissing(message)
    else {
      const holdJob = (job: SentJob, spec: TaskSpec): void => this.#hold(job, spec)
      unpackJobs(message, holdJob, (job) => this.#holdStoredJob(job).catch(this.#options.onFailed))
      this.#options.onArrival()
    }
  }

  async #holdStoredJob(job: WireJob): Promise<void> {
    const { uid, attempt, spec, specObject } = job
    if (spec !== null) return this.#hold(job, spec)
    if (specObject === null) return
    const { epoch } = this.driver
    try {
      const loaded = await this.#arrivingSpecs.load(job, specObject)
      if (this.driver.epoch !== epoch) return
      this.#hold(job, loaded.spec)
      if (loaded.cancelReason !== null) this.#cancel([[uid, attempt]], loaded.cancelReason)
    } catch {
      // The store has lost the spec. The driver stores and sends it again.
      if (this.driver.epoch === epoch) this.#reports.addReturned(job)
    }
    this.#options.onChange()
  }

  #hold(job: SentJob, spec: TaskSpec): void {
    // The job may have been sent before, possibly before a restart of the driver.
    const latest = this.held.latestAttempt(job.uid)
    const older = latest === 0 ? undefined : this.held.get(job.uid)
    if (latest >= job.attempt && (older || !this.outbox.hasGivenUp(job.uid))) return
    // The driver gave up an earlier attempt when it lost this agent. That attempt may still run
    // here.
    if (older !== undefined) {
      this.held.delete(older)
      if (older.isWaiting) this.held.unqueue(older)
      else this.#connection.cancel(older, 'a later attempt has arrived')
    }
    if (this.#isDraining || this.isEnding) return this.#reports.addReturned(job)
    const digest = this.#modules.findDigest(spec)
    const local = digest === null ? spec : this.#modules.toLocal(spec)
    const { spec: placed, problem } = this.#folder.toPlacedSpec(local, this.#attach.folder)
    const held = new HeldAttempt(this.id, job, placed, ++this.#sequence)
    this.held.add(held)
    if (problem !== undefined) this.#fail(held, problem)
    else if (digest === null) this.#enqueue(held)
    else this.#enqueueWithBundle(held, digest).catch(this.#options.onFailed)
  }

  /** Also called for an attempt that was replaced, which keeps its cores until it has ended. */
  #releaseCores(held: HeldAttempt): void {
    this.held.releaseCores(held)
    this.#options.onChange()
  }

  #enqueue(held: HeldAttempt): void {
    const notAllowed = this.#options.refuse(held.spec)
    if (notAllowed !== null) return this.#returnJobs([held], notAllowed)
    this.held.enqueue(held)
  }

  async #enqueueWithBundle(held: HeldAttempt, digest: string): Promise<void> {
    const prepared = await this.#modules.prepare(digest)
    if (!held.isHeld || !held.isWaiting) return
    if (prepared === 'ready') this.#enqueue(held)
    else if (prepared === 'lost') {
      this.#reports.addLostBundle(digest)
      this.#returnJobs([held])
    } else this.#fail(held, prepared)
    this.#options.onChange()
  }

  #fail(held: HeldAttempt, error: Error): void {
    held.isWaiting = false
    this.#end(held, { kind: 'fail', error }, this.#options.clock.monotonicMs())
  }

  #cancel(jobs: readonly JobReference[], reason: string): void {
    for (const [uid, attempt] of jobs) {
      const held = this.held.get(uid)
      this.#arrivingSpecs.cancel(uid, attempt, reason)
      if (held === undefined) this.outbox.cancel(uid, attempt, reason)
      if (held === undefined || held.attempt !== attempt) continue
      if (held.isWaiting) this.#cancelWaiting(held, reason)
      else this.#connection.cancel(held, reason)
    }
  }

  #cancelWaiting(held: HeldAttempt, reason: string): void {
    this.held.unqueue(held)
    this.#end(held, { kind: 'cancel', reason }, this.#options.clock.monotonicMs())
  }

  #end(held: HeldAttempt, report: ResultReport, atMs: number): void {
    this.held.markEnded(held, atMs)
    this.outbox.add(held, report, atMs, this.held)
    this.#releaseCores(held)
  }

  #withdraw(): void {
    this.held.requeue(this.#connection.withdraw().filter((job) => job instanceof HeldAttempt))
  }

  #returnAllJobs(): void {
    this.#withdraw()
    this.#returnJobs(this.held.waiting)
  }

  #returnJobs(jobs: readonly (HeldAttempt | undefined)[], notAllowed?: NotAllowed): void {
    for (const held of jobs) {
      if (held?.isWaiting !== true) continue
      this.held.unqueue(held)
      this.held.delete(held)
      this.#reports.addReturned(held, notAllowed)
    }
  }
}
