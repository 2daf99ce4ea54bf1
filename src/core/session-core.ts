/**
 * The common base of sessions and workflow engines: backends, admission, ledger and telemetry, and
 * the order in which they start and close. Not for applications.
 */

import { channel } from 'node:diagnostics_channel'
import type {
  AnyTask,
  Backend,
  BackendListener,
  Job,
  NodeNotice,
  Notice,
} from '../backends/backend.ts'
import { resumeChannel, takeRequest, type TakenRequest } from '../checkpoint/run-file.ts'
import type { EventClass, TrustedFields } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf, StateError, ValueError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Log } from '../foundation/log.ts'
import { once } from '../foundation/service.ts'
import type { Task } from '../tasks/task.ts'
import type { TelemetryManager } from '../telemetry/manager.ts'
import { Admission } from './admission.ts'
import {
  Attempt,
  type BackendBinding,
  type Entry,
  type Opening,
  type Target,
  type UndispatchedEnd,
  type Work,
} from './entry.ts'
import { Ledger } from './ledger.ts'
import { TelemetryEmitter } from './lifecycle-emitter.ts'
import { type NameLimitOptions, toWireLimits } from './limits/name-limits.ts'
import { RecordedEnds } from './recorded-ends.ts'
import type { ResumedRecord, ResumeOptions } from './resume/resume-options.ts'
import { type ResumedTasks, SessionResume } from './resume/session-resume.ts'
import { route } from './routing.ts'
import { SessionTelemetry } from './session-telemetry.ts'
import {
  type CloseOptions,
  expectBackend,
  expectConnection,
  type ResolvedSessionOptions,
  resolveSessionTelemetry,
  type SessionTelemetryOptions,
} from './session-options.ts'

/** How long a backend may take to end its jobs before their tasks are canceled without it. */
const closeDeadlineMs = 10_000

/** A deferred task with its work and target. If `target` is `null`, routing chooses one. */
export interface Dispatch {
  readonly entry: Entry
  readonly work: Work
  readonly target: Target | null
}

export class SessionCore {
  readonly clock: Clock
  readonly log: Log
  readonly #ledger: Ledger
  readonly #admission: Admission
  readonly #recordedEnds: RecordedEnds
  readonly #bindings: BackendBinding[] = []
  #id: string
  readonly #isOwnId: boolean
  readonly #limits: NameLimitOptions | null
  readonly #resumed: SessionResume
  #telemetry: SessionTelemetry | null = null

  constructor({ id, isOwnId, workDir, limits, clock, log }: ResolvedSessionOptions) {
    this.#id = id
    this.#isOwnId = isOwnId
    this.#limits = limits
    this.clock = clock
    this.log = log
    this.#recordedEnds = new RecordedEnds({ clock, log })
    this.#ledger = new Ledger({
      clock,
      log,
      expectedBackend: (entry) => this.#expectedBackend(entry),
      sessionId: id,
      workDir,
      limits,
      onEnded: () => this.#admission.makeRoom(),
      onAttemptEnded: (connection, job) => this.#recordedEnds.add(connection, job),
    })
    this.#resumed = new SessionResume(this.#ledger)
    const [ledger, bindings] = [this.#ledger, this.#bindings]
    this.#admission = new Admission({ clock, ledger, bindings })
  }

  /** The caller's id or a generated one; after a resume, the id of the record. */
  get id(): string {
    return this.#id
  }

  get backends(): readonly Backend[] {
    return this.#bindings.map(({ backend }) => backend)
  }

  /** The telemetry that `startTelemetry` started, if any. */
  get telemetry(): TelemetryManager | null {
    return this.#telemetry
  }

  /** Resolves when all tasks submitted so far have been checked; `null` if they already are. */
  get checks(): Promise<unknown> | null {
    return this.#admission.checks
  }

  addBackend(backend: Backend): void {
    this.addBackends([expectBackend('backend', backend)])
  }

  /** Checks all names before connecting, because a connection may create remote resources. */
  addBackends(backends: readonly Backend[]): void {
    this.#admission.expectOpen()
    const names = new Set(this.#bindings.map(({ backend }) => backend.name))
    for (const { name } of backends) {
      if (names.has(name)) {
        const text = `the session already has a backend "${name}"`
        throw new ValueError(text, { field: 'backend.name', got: name })
      }
      names.add(name)
    }
    for (const backend of backends) {
      this.#bindings.push(this.#connect(backend))
      this.#telemetry?.poller.follow(backend.name, backend.nodes ?? [])
    }
  }

  #connect(backend: Backend): BackendBinding {
    const session = { id: this.id, closureOf: (job: Job) => Attempt.closureOf(job) }
    const connection: unknown = backend.connect(this.createListener(backend.name), session)
    expectConnection(backend.name, connection)
    return { backend, connection }
  }

  /** Continues the run of a record; see `Session.resume`. */
  async resume(file: string, options: ResumeOptions): Promise<ResumedRecord> {
    this.#admission.expectOpen()
    if (this.#telemetry !== null || this.#ledger.isUsed) {
      const text = 'resume() must be called before startTelemetry() and the first submission'
      const hint =
        'Call it right after creating the session; under `tutti resume`, where startTelemetry() ' +
        'resumes the record, call startTelemetry() there.'
      throw new StateError(text, { code: 'ResumeRefusedError', hint })
    }
    const ownId = this.#isOwnId ? this.#id : null
    const useId = (id: string): Promise<void> => this.#useId(id)
    const { clock, log } = this
    const record = await this.#resumed.open(file, options, { ownId, clock, log, useId })
    this.#admission.earlier = this.#resumed
    this.#resumed.onAccepted = () => channel(resumeChannel).publish({ record, options })
    return record
  }

  get resumed(): ResumedTasks {
    return this.#resumed
  }

  /** Changes the session's id. Backends are reconnected, because they know the session by it. */
  async #useId(id: string): Promise<void> {
    this.#admission.expectOpen()
    if (id === this.#id) return
    this.#id = id
    this.#ledger.rename(id)
    const before = this.#bindings.splice(0)
    await Promise.all(before.map(({ connection }) => connection.release('resumed')))
    for (const { backend } of before) this.#bindings.push(this.#connect(backend))
  }

  /** Creates the listener for a backend or another target of dispatched work. */
  createListener(backendName: string): BackendListener {
    let isWarned = false
    const warn = (what: string, error: unknown): void => {
      if (isWarned) return
      isWarned = true
      const text = `${what} of backend "${backendName}" was ignored: ${messageOf(error)}`
      this.log.warn('BackendMisused', `${text}; further ones are not reported`)
    }
    return {
      report: (job, report) => {
        try {
          this.#ledger.record(job, report)
        } catch (error) {
          warn('a report', error)
        }
      },
      notice: (notice) => {
        try {
          if (isNodeNotice(notice)) this.#telemetry?.poller.take(backendName, notice)
          else this.#ledger.emitter.noticed(backendName, notice)
        } catch (error) {
          warn('a notice', error)
        }
      },
    }
  }

  async startTelemetry(given: SessionTelemetryOptions): Promise<TelemetryManager> {
    resolveSessionTelemetry(given)
    this.#admission.expectOpen()
    this.#resumed.expectNotReading()
    if (this.#telemetry !== null) throw new StateError('telemetry was already started')
    const request = takeRequest()
    const options = request === null ? given : await this.#follow(request, given)
    const { pollSeconds, maxValueBytes, manager } = resolveSessionTelemetry(options)
    const parts = { sessionId: this.id, clock: this.clock, log: this.log }
    const telemetry = new SessionTelemetry(
      { ...manager, ...parts, ...this.#resumed.folderFor(manager.checkpointPath) },
      { maxValueBytes, runFacts: this.#runFacts(), ...this.#resumed.recordParts },
      pollSeconds,
    )
    this.#telemetry = telemetry
    await telemetry.start().catch((error: unknown) => {
      this.#telemetry = null
      throw error
    })
    await this.#tellRecord(request, telemetry)
    this.#admission.expectOpen()
    const { poller } = telemetry
    const emitter = new TelemetryEmitter({
      ...parts,
      sink: telemetry,
      keepResults: maxValueBytes !== null,
      keepValue: (uid, value) => telemetry.keepValue(uid, value),
    })
    this.#ledger.emitter.use(emitter)
    if (telemetry.checkpointFile !== null) this.#recordedEnds.record = telemetry
    telemetry.followOutputs((uid) => this.#ledger.findOpen(uid))
    for (const { backend } of this.#bindings) poller.follow(backend.name, backend.nodes ?? [])
    await poller.start()
    return telemetry
  }

  /** Reports the record to the command. If that fails, as on a full disk, stops telemetry again. */
  async #tellRecord(request: TakenRequest | null, telemetry: SessionTelemetry): Promise<void> {
    const { checkpointFile } = telemetry
    try {
      if (checkpointFile !== null) request?.tellRecord(checkpointFile)
    } catch (error) {
      await telemetry.stop()
      throw error
    }
  }

  #runFacts(): JsonObject {
    const facts = this.backends.map(({ runFacts }) => runFacts ?? {})
    const limits = this.#limits === null ? {} : { 'tutti.limits': toWireLimits(this.#limits) }
    return Object.assign({}, ...facts, limits) as JsonObject
  }

  /** Applies the request of `tutti run` or `tutti resume`. The program's options override it. */
  async #follow(
    { resume, session_id: id = null, keep_results: keepResults }: TakenRequest,
    given: SessionTelemetryOptions,
  ): Promise<SessionTelemetryOptions> {
    if (resume === null) {
      if (id !== null && !this.#isOwnId && !this.#ledger.isUsed) await this.#useId(id)
      return { checkpointPath: 'telemetry', keepResults, ...given }
    }
    const { record, changed, keep_failed: keepFailed } = resume
    if (!this.#resumed.isActive) await this.resume(record, { changed, keepFailed })
    return { keepResults, ...given }
  }

  /** Submits a list, all or nothing; see `Admission`. */
  async submit(tasks: readonly AnyTask[]): Promise<void> {
    this.#resumed.expectNotReading()
    return this.#admission.submit(tasks)
  }

  /** The entry of a task that was submitted to this session and has not ended. */
  find(task: Task): Entry | undefined {
    return this.#ledger.find(task)
  }

  /** Requests a task's cancellation; `false` if already requested or if the task has ended. */
  cancel(task: Task, reason: string): boolean {
    return this.#ledger.requestCancel(task, reason)
  }

  /** Reserves a task and its uid for `defer`; `false` if either is taken. */
  claim(task: Task): boolean {
    this.#resumed.expectNotReading()
    return this.#ledger.claim(task)
  }

  /**
   * Opens a claimed task whose work is not known yet, and emits TaskCreated. The task can be
   * awaited and canceled. If its signal is already aborted, the task has ended on return.
   */
  defer(task: Task, opening: Opening): Entry {
    if (!this.#resumed.isActive) return this.#ledger.defer(task, opening)
    this.#resumed.accepted()
    const plan = (entry: Entry): void => this.#resumed.planEntry(entry, opening.inputs?.())
    return this.#ledger.defer(task, { ...opening, plan })
  }

  /** Hands deferred tasks to their backends in batches. A task that no backend accepts fails. */
  dispatch(items: readonly Dispatch[]): void {
    const entries: Entry[] = []
    for (const { entry, work, target: own } of items) {
      const target = own ?? this.#route(entry, work)
      if (target === null) continue
      this.#ledger.dispatch(entry, work, target)
      entries.push(entry)
    }
    this.#ledger.submit(entries)
  }

  /**
   * Ends a deferred task that was not dispatched; ignores other tasks. `between` is called after
   * TaskSubmitted and before the terminal event.
   */
  end(entry: Entry, end: UndispatchedEnd, between?: () => void): void {
    this.#ledger.end(entry, end, between)
  }

  /** Emits an event of the library, if there is telemetry. */
  emit<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void {
    this.#ledger.emitter.emit(eventClass, fields)
  }

  /** Idempotent: returns the same promise each time. See `Session.close`. */
  readonly close = once((options: CloseOptions) => this.#closeOnce(options))

  async #closeOnce({ keepBackends = false }: CloseOptions): Promise<void> {
    const admitted = this.#admission.close()
    this.#ledger.beginClosing(closeReason)
    const { promise: deadline, resolve } = Promise.withResolvers<void>()
    let isOverdue = false
    const cancelTimer = this.clock.after(closeDeadlineMs, () => {
      isOverdue = true
      resolve()
    })
    // Wait before the release, because closed backends would refuse tasks still being checked.
    if (admitted !== null) await within(deadline, () => admitted)
    // Report recorded results before the release, so that remote backends can remove them.
    if (this.#recordedEnds.hasPending) await within(deadline, () => this.#recordedEnds.settle())
    await this.#forEachBinding(async ({ connection }) => {
      await within(deadline, () => connection.release(closeReason))
      await within(deadline, () => this.#recordedEnds.seal(connection))
    })
    // Stop the poller while the backends are open: they deliver the last samples of their nodes.
    const poller = isOverdue ? undefined : this.#telemetry?.poller
    if (poller !== undefined) await within(deadline, () => poller.stop())
    if (!keepBackends) {
      await this.#forEachBinding(({ backend }) => within(deadline, () => backend.close()))
    }
    await within(deadline, () => this.#recordedEnds.close())
    cancelTimer()
    this.#ledger.cancelRest(closeReason)
    await this.#telemetry?.stop()
    await this.#resumed.close(this.#telemetry?.checkpointFile ?? null)
  }

  async #forEachBinding(act: (binding: BackendBinding) => Promise<void>): Promise<void> {
    await Promise.all(this.#bindings.map(act))
  }

  #expectedBackend({ expected, task }: Entry): Target['backend'] | null {
    const named = task.backend === null ? null : { name: task.backend }
    if (expected === null) return named
    if (expected.target !== null) return expected.target.backend
    try {
      const found = route(expected.work, this.#bindings)
      return 'binding' in found ? found.binding.backend : named
    } catch {
      return named
    }
  }

  #route(entry: Entry, work: Work): Target | null {
    try {
      const found = route(work, this.#bindings)
      if ('binding' in found) return found.binding
      const { field, message, code } = found.problem
      throw new ValueError(field === '' ? message : `${field}: ${message}`, { code, field })
    } catch (error) {
      this.end(entry, { kind: 'fail', error })
      return null
    }
  }
}

const isNodeNotice = (notice: Notice): notice is NodeNotice =>
  notice.kind === 'sample' || notice.kind === 'node-joined' || notice.kind === 'node-left'

const closeReason = 'session closed'

/** Waits for a step until the deadline at most, and ignores its failure. */
async function within(deadline: Promise<void>, step: () => Promise<unknown>): Promise<void> {
  try {
    await Promise.race([step(), deadline])
  } catch {
    // The ledger cancels the tasks that the backend did not end.
  }
}
