/** One session on an agent: holds its jobs from arrival until their results are in the stream. */

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
import type { TaskSpec } from '../../tasks/spec.ts'
import type { ProgramOutput } from '../../tasks/task-record.ts'
import type { Broker } from '../broker/broker.ts'
import { type Keys, newEpoch } from '../wire/envelope.ts'
import { payloadLimit, unpackJobs } from '../wire/job-batches.ts'
import {
  silenceMs,
  type AgentStart,
  type Attach,
  type DriverMessage,
  type JobReference,
  type NotAllowed,
  type Offer,
  type SentJob,
  type WireJob,
} from '../wire/messages.ts'
import { type SessionSubjects, sessionSubjects, toUseId } from '../wire/subjects.ts'
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
  /** The parent of the folder for a session whose own folder does not exist on this node. */
  readonly folder: WorkFolder
  readonly bundles: UnpackedBundles
  readonly connect: (listener: BackendListener) => LocalConnection
  /** Returns why the agent's rules forbid a task, or `null`. */
  readonly refuse: (spec: TaskSpec) => NotAllowed | null
  /** Returns how much work the session's driver may send now. */
  readonly offer: (session: AgentSession) => Offer
  /** Called when a message with jobs has arrived. */
  readonly onArrival: () => void
  /** Called when a job is waiting or resources have become free. */
  readonly onChange: () => void
  readonly onRefusedMessage: (reason: string) => void
  readonly onProblem: (error: unknown) => void
  /** Called with an unexpected error: the session cannot continue. */
  readonly onFailed: (error: unknown) => void
  readonly onDroppedEvent: (why: string) => void
}

export class AgentSession implements BackendListener {
  /** Identifies the session and its backend. */
  readonly id: string
  readonly subjects: SessionSubjects
  /** Identifies this use of the agent. Result messages are numbered from 1 within it. */
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
  readonly #arriving: ArrivingSpecs
  #isDraining = false
  #endings: Promise<void> | null = null

  constructor(options: AgentSessionOptions) {
    const { attach, self, broker, clock } = options
    const keys = (): Keys => this.#keys
    this.#options = options
    this.#attach = attach
    this.#keys = options.deriveKeys(attach)
    this.id = toUseId(attach)
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
      patienceMs: () => this.#attach.agentTimeoutSeconds * 1000,
      isRecorded: (message) => this.outbox.isRecorded(message),
      onProblem: (error) => this.outbox.block(error),
    })
    const { objects } = this.#store
    this.#arriving = new ArrivingSpecs(objects)
    this.#modules = new SessionModules({ ...options, objects, sessionId: this.id })
    this.#connection = options.connect(this)
    this.outbox = new ResultOutbox({
      ...options,
      agent: self.name,
      epoch: this.endsEpoch,
      key: () => this.#keys.toDriver,
      subject: this.subjects.endsOf(self.name),
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
      head: () => ({ offer: options.offer(this), ...this.outbox.state }),
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
        onMessage: (message) => this.#take(message),
        onBeat: (beat) => this.outbox.takeBeat(beat),
        onRefused: options.onRefusedMessage,
      },
      attach,
    )
  }

  get run(): string {
    return this.#attach.run
  }

  /** Whether the session could use more cores, so that it gets a share of the node. */
  get isActive(): boolean {
    return this.held.queued > 0 || this.driver.hasWaiting
  }

  /** Whether the session is ending here: a driver that attaches then gets a new `AgentSession`. */
  get isEnding(): boolean {
    return this.#endings !== null
  }

  /** Attaches a driver again: a restarted driver, or one that had lost this agent. */
  attachTo(attach: Attach): void {
    const isLater = attach.epoch !== this.driver.epoch
    const isAnotherRun = attach.run !== this.#attach.run
    this.#attach = attach
    if (isAnotherRun) {
      this.#keys = this.#options.deriveKeys(attach)
      this.outbox.signAgain()
    }
    // A restarted driver sends the jobs that it still needs again, perhaps with changes.
    if (isLater) this.#giveBackAll()
    const unconfirmed = this.driver.attach(attach)
    // A driver that had lost this agent no longer tracks the tasks of these events.
    this.#reports.restart(isLater ? unconfirmed : [], (uid) => this.held.latest(uid) > 0)
  }

  /** Called every half second. Returns `true` when the session's driver is gone for good. */
  tick(nowMs: number): boolean {
    this.driver.tick()
    this.#reports.send()
    // The running attempts take long, so queued ones may begin sooner on other nodes.
    if (this.held.isStalled) this.#withdraw()
    // Returns jobs beyond the offer and one second of work, because another node may be free.
    const excess = this.held.excess(this.#options.offer(this).ahead, this.driver)
    this.#giveBack(excess)
    if (excess.length > 0) this.#options.onChange()
    return nowMs - this.driver.heardMs > this.#attach.ownerTtlSeconds * 1000
  }

  reconnected(): void {
    this.driver.reconnected()
    this.outbox.resend()
  }

  /**
   * Begins waiting jobs until they hold this many cores; returns how many they hold. Begins nothing
   * while the driver is silent, because it may move the jobs to another node.
   */
  begin(maxCores: number): number {
    if (this.#endings !== null || this.outbox.isBlocked || this.outbox.isFull) return 0
    if (this.#options.clock.monotonicMs() - this.driver.heardMs > silenceMs) return 0
    try {
      const { jobs, cores } = this.held.give(maxCores)
      if (jobs.length > 0) this.#connection.submit(jobs)
      return cores
    } catch (error) {
      this.#options.onFailed(error)
      return 0
    }
  }

  /** Returns the output of a running program so far; `null` if the attempt does not run here. */
  async output(uid: string, attempt: number): Promise<ProgramOutput | null> {
    const held = this.held.get(uid)
    if (held?.attempt !== attempt) return null
    return (await this.#connection.output?.(held)) ?? null
  }

  /** Returns all jobs that have not begun, and accepts no more. */
  drain(): void {
    this.#isDraining = true
    this.#giveBackAll()
  }

  report(job: Job, report: TaskReport): void {
    if (!(job instanceof HeldAttempt)) return
    try {
      this.#takeReport(job, report)
    } catch (error) {
      this.#options.onFailed(error)
    }
  }

  #takeReport(job: HeldAttempt, report: TaskReport): void {
    if (!job.isHeld && report.kind !== 'start') this.#leaveCores(job)
    if (!job.isHeld) return
    const atMs = report.at?.monotonicMs ?? this.#options.clock.monotonicMs()
    if (report.kind === 'start') {
      job.beganMs = atMs
      job.workerId = report.workerId
      job.files = report.facts ?? null
      this.#reports.addStart(job)
      return
    }
    this.#end(job, this.#modules.nameNode(report, job.spec), atMs)
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

  /** Called when the agent leaves: limits how long `end` waits for the broker. */
  limitWait(): void {
    this.outbox.limitWait(this.#attach.ownerTtlSeconds * 1000)
  }

  /** Ends all attempts. If `isAbandoned` by its driver, waits until the stream has all results. */
  end(reason: string, isAbandoned: boolean): Promise<void> {
    this.#endings ??= this.#endOnce(reason, isAbandoned)
    return this.#endings
  }

  async #endOnce(reason: string, isAbandoned: boolean): Promise<void> {
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
      await Promise.all([this.#folder.remove(), this.#modules.leave()])
    }
  }

  /** While the broker cannot store results, running attempts continue, but no new ones begin. */
  #throttle(error: unknown): void {
    if (this.outbox.isBlocked) return
    const reason = `the broker does not store results: ${messageOf(error)}`
    this.notice(toEventNotice(BackendThrottled, { reason, limit: 0 }))
    this.#options.onProblem(error)
  }

  #take(message: DriverMessage): void {
    if (message.kind === 'cancel') this.#cancel(message.jobs, message.reason)
    else if (message.kind === 'recall') {
      this.#withdraw()
      this.#giveBack(message.jobs.map(([uid]) => this.held.get(uid)))
    } else if (message.kind === 'recorded') {
      for (const uid of this.outbox.recorded(message)) this.held.recorded(uid)
      this.#options.onChange()
    } else if (message.kind === 'missing') this.outbox.sendAgain(message)
    else {
      const hold = (job: SentJob, spec: TaskSpec): void => this.#hold(job, spec)
      unpackJobs(message, hold, (job) => this.#holdOther(job).catch(this.#options.onFailed))
      this.#options.onArrival()
    }
  }

  async #holdOther(job: WireJob): Promise<void> {
    const { uid, attempt, spec, specObject } = job
    if (spec !== null) return this.#hold(job, spec)
    if (specObject === null) return
    const { epoch } = this.driver
    try {
      const loaded = await this.#arriving.load(job, specObject)
      if (this.driver.epoch !== epoch) return
      this.#hold(job, loaded.spec)
      if (loaded.cancelReason !== null) this.#cancel([[uid, attempt]], loaded.cancelReason)
    } catch (error) {
      if (this.driver.epoch === epoch) this.#reports.addReturned(job)
      this.#options.onProblem(error)
    }
    this.#options.onChange()
  }

  #hold(job: SentJob, spec: TaskSpec): void {
    // The job may have been submitted before, by this driver or before its restart.
    const latest = this.held.latest(job.uid)
    const older = latest === 0 ? undefined : this.held.get(job.uid)
    if (latest >= job.attempt && (older || !this.outbox.hasGivenUp(job.uid))) return
    // The driver had lost this agent and abandoned an attempt that may still run here.
    if (older !== undefined) {
      this.held.delete(older)
      if (older.isWaiting) this.held.unqueue(older)
      else this.#connection.cancel(older, 'a later attempt has arrived')
    }
    if (this.#isDraining || this.#endings !== null) return this.#reports.addReturned(job)
    const digest = this.#modules.digestOf(spec)
    const local = digest === null ? spec : this.#modules.toLocal(spec)
    const { spec: placed, problem } = this.#folder.place(local, this.#attach.folder)
    const held = new HeldAttempt(this.id, job, placed, ++this.#sequence)
    this.held.add(held)
    if (problem !== undefined) this.#fail(held, problem)
    else if (digest === null) this.#enqueue(held)
    else this.#enqueueWithBundle(held, digest).catch(this.#options.onFailed)
  }

  /** A replaced attempt holds its cores until it has ended. */
  #leaveCores(held: HeldAttempt): void {
    this.held.leave(held)
    this.#options.onChange()
  }

  #enqueue(held: HeldAttempt): void {
    const notAllowed = this.#options.refuse(held.spec)
    if (notAllowed !== null) return this.#giveBack([held], notAllowed)
    this.held.enqueue(held)
  }

  async #enqueueWithBundle(held: HeldAttempt, digest: string): Promise<void> {
    const prepared = await this.#modules.prepare(digest)
    if (!held.isHeld || !held.isWaiting) return
    if (prepared === 'ready') this.#enqueue(held)
    else if (prepared === 'lost') {
      this.#reports.addLostBundle(digest)
      this.#giveBack([held])
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
      this.#arriving.cancel(uid, attempt, reason)
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

  #end(held: HeldAttempt, report: Exclude<TaskReport, { kind: 'start' }>, atMs: number): void {
    this.held.end(held, atMs)
    this.outbox.add(held, report, atMs, this.held)
    this.#leaveCores(held)
  }

  /** Moves attempts that the backend has not begun back into the queue. */
  #withdraw(): void {
    this.held.putBack(this.#connection.withdraw().filter((job) => job instanceof HeldAttempt))
  }

  #giveBackAll(): void {
    this.#withdraw()
    this.#giveBack(this.held.waiting)
  }

  #giveBack(jobs: readonly (HeldAttempt | undefined)[], notAllowed?: NotAllowed): void {
    for (const held of jobs) {
      if (held?.isWaiting !== true) continue
      this.held.unqueue(held)
      this.held.delete(held)
      this.#reports.addReturned(held, notAllowed)
    }
  }
}
