/**
 * The common base of sessions and workflow engines: backends, admission, ledger and telemetry, and
 * the order in which they start and close. Not for applications.
 */

import { channel } from 'node:diagnostics_channel'
import type {
  AnyTask,
  Backend,
  BackendListener,
  ConnectedSession,
  NodeNotice,
  Notice,
} from '../backends/backend.ts'
import { LoopDelay } from '../backends/sampling/loop-delay.ts'
import { ResourcePoller } from '../backends/sampling/poller.ts'
import { resumeChannel, claimRequest, type ClaimedRequest } from '../checkpoint/run-file.ts'
import type { EventClass, TrustedFields } from '../events/event.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf, StateError, ValueError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import type { Log } from '../foundation/log.ts'
import { once } from '../foundation/service.ts'
import type { Task } from '../tasks/task.ts'
import { TelemetryManager } from '../telemetry/manager.ts'
import type { RecordParts, TelemetryOptions } from '../telemetry/options.ts'
import { Admission } from './admission.ts'
import {
  Attempt,
  type BackendBinding,
  type Entry,
  type OpenTaskOptions,
  type Target,
  type UndispatchedOutcome,
  type Work,
} from './entry.ts'
import { Ledger } from './ledger.ts'
import { TelemetryEmitter } from './lifecycle-emitter.ts'
import { type NameLimitOptions, toWireLimits } from './limits/name-limits.ts'
import { type OutputFollowerParts, OutputFollower } from './output-follower.ts'
import { RecordedAttempts } from './recorded-attempts.ts'
import type { ResumedRecord, ResumeOptions } from './resume/resumption.ts'
import { SessionResume } from './resume/session-resume.ts'
import { route } from './routing.ts'
import { SessionBeginning } from './session-beginning.ts'
import {
  type CloseOptions,
  expectBackend,
  expectConnection,
  type ResolvedSessionOptions,
  resolveSessionTelemetry,
  type SessionTelemetryOptions,
} from './session-options.ts'

/** How long closing waits for a backend to end its jobs. Then the ledger cancels their tasks. */
const closeDeadlineMs = 10_000

/** A task that `defer` has opened, with its work. If `target` is `null`, routing chooses one. */
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
  readonly #recordedAttempts: RecordedAttempts
  readonly #bindings: BackendBinding[] = []
  #id: string
  readonly #hasChosenId: boolean
  readonly #limits: NameLimitOptions | null
  readonly #resumed: SessionResume
  readonly #beginning: SessionBeginning
  #telemetry: SessionTelemetry | null = null

  constructor({ id, hasChosenId, workDir, limits, clock, log }: ResolvedSessionOptions) {
    this.#id = id
    this.#hasChosenId = hasChosenId
    this.#limits = limits
    this.clock = clock
    this.log = log
    this.#recordedAttempts = new RecordedAttempts({ clock, log })
    this.#ledger = new Ledger({
      clock,
      log,
      expectedBackend: (entry) => this.#expectedBackend(entry),
      sessionId: id,
      workDir,
      limits,
      onEnded: () => this.#admission.makeRoom(),
      onAttemptEnded: (connection, job) => this.#recordedAttempts.add(connection, job),
    })
    this.#resumed = new SessionResume(this.#ledger)
    this.#beginning = new SessionBeginning({ clock, flush: () => this.#flush() })
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
      this.#telemetry?.poller.addBackend(backend.name, backend.nodes ?? [])
    }
  }

  #connect(backend: Backend): BackendBinding {
    const session: ConnectedSession = {
      id: this.id,
      ...this.#beginning.describeTo(backend.name),
      closureOf: (job) => Attempt.findClosure(job),
      metrics: async () => (await this.#telemetry?.collectMetrics()) ?? null,
    }
    const connection: unknown = backend.connect(this.createListener(backend.name), session)
    expectConnection(backend.name, connection)
    return { backend, connection }
  }

  async resume(file: string, options: ResumeOptions): Promise<ResumedRecord> {
    this.#admission.expectOpen()
    if (this.#telemetry !== null || this.#ledger.hasTasks) {
      const text = 'resume() must be called before startTelemetry() and the first submission'
      const hint =
        'Call it right after creating the session; under `tutti resume`, where startTelemetry() ' +
        'resumes the record, call startTelemetry() there.'
      throw new StateError(text, { code: 'ResumeRefusedError', hint })
    }
    const chosenId = this.#hasChosenId ? this.#id : null
    const useId = (id: string): Promise<void> => this.#changeId(id)
    const { clock, log } = this
    const record = await this.#resumed.open(file, options, { chosenId, clock, log, useId })
    this.#admission.earlierRun = this.#resumed
    this.#beginning.resume(this.#resumed.nodes)
    this.#resumed.onAccepted = () => channel(resumeChannel).publish({ record, options })
    return record
  }

  get resumed(): SessionResume {
    return this.#resumed
  }

  /** Changes the session's id. Reconnects the backends, because they know the session by its id. */
  async #changeId(id: string): Promise<void> {
    this.#admission.expectOpen()
    if (id === this.#id) return
    this.#id = id
    this.#ledger.rename(id)
    const oldBindings = this.#bindings.splice(0)
    const endBeginning = this.#beginning.reconnect()
    const released = oldBindings.map(({ connection }) => connection.release('resumed'))
    endBeginning()
    await Promise.all(released)
    for (const { backend } of oldBindings) this.#bindings.push(this.#connect(backend))
  }

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
          if (isNodeNotice(notice)) this.#telemetry?.poller.handleNotice(backendName, notice)
          else this.#ledger.emitter.noticed(backendName, notice)
        } catch (error) {
          warn('a notice', error)
        }
      },
    }
  }

  startTelemetry(given: SessionTelemetryOptions): Promise<TelemetryManager> {
    const started = this.#startTelemetry(given)
    this.#beginning.startTelemetry(started)
    return started
  }

  async #flush(): Promise<void> {
    if (this.#telemetry?.checkpointFile) await this.#telemetry.flush()
  }

  async #startTelemetry(given: SessionTelemetryOptions): Promise<TelemetryManager> {
    resolveSessionTelemetry(given)
    this.#admission.expectOpen()
    this.#resumed.expectNotReading()
    if (this.#telemetry !== null) throw new StateError('telemetry was already started')
    const request = claimRequest()
    const options = request === null ? given : await this.#applyRequest(request, given)
    const hasRecord = options.checkpointPath !== undefined || this.#resumed.isActive
    const keepsResults = hasRecord && this.backends.some((backend) => backend.keepsResults)
    const { pollSeconds, maxValueBytes, manager } = resolveSessionTelemetry(options, keepsResults)
    const parts = { sessionId: this.id, clock: this.clock, log: this.log }
    const telemetry = new SessionTelemetry(
      { ...manager, ...parts, ...this.#resumed.resolveFolder(manager.checkpointPath) },
      { maxValueBytes, runFacts: this.#runFacts(), ...this.#resumed.recordParts },
      pollSeconds,
    )
    this.#telemetry = telemetry
    await telemetry.start().catch((error: unknown) => {
      this.#telemetry = null
      throw error
    })
    await this.#reportRecord(request, telemetry)
    this.#admission.expectOpen()
    const { poller } = telemetry
    const emitter = new TelemetryEmitter({
      ...parts,
      sink: telemetry,
      keepResults: maxValueBytes !== null,
      keepValue: (uid, value) => telemetry.keepValue(uid, value),
    })
    this.#ledger.emitter.use(emitter)
    if (telemetry.checkpointFile !== null) this.#recordedAttempts.record = telemetry
    telemetry.followOutputs((uid) => this.#ledger.findOpen(uid))
    for (const { backend } of this.#bindings) poller.addBackend(backend.name, backend.nodes ?? [])
    await poller.start()
    return telemetry
  }

  /** Reports the record to the command that started the program. If this fails, stops telemetry. */
  async #reportRecord(request: ClaimedRequest | null, telemetry: SessionTelemetry): Promise<void> {
    const { checkpointFile } = telemetry
    try {
      if (checkpointFile !== null) request?.reportRecord(checkpointFile)
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
  async #applyRequest(
    { resume, session_id: id = null, keep_results: keepResults }: ClaimedRequest,
    given: SessionTelemetryOptions,
  ): Promise<SessionTelemetryOptions> {
    if (resume === null) {
      if (id !== null && !this.#hasChosenId && !this.#ledger.hasTasks) await this.#changeId(id)
      return { checkpointPath: 'telemetry', keepResults, ...given }
    }
    const { record, changed, keep_failed: keepFailed } = resume
    if (!this.#resumed.isActive) await this.resume(record, { changed, keepFailed })
    return { keepResults, ...given }
  }

  async submit(tasks: readonly AnyTask[]): Promise<void> {
    this.#resumed.expectNotReading()
    const submitted = this.#admission.submit(tasks)
    // A list that was refused is no submission.
    if (this.#ledger.hasTasks) this.#beginning.end()
    return submitted
  }

  find(task: Task): Entry | undefined {
    return this.#ledger.find(task)
  }

  cancel(task: Task, reason: string): boolean {
    return this.#ledger.requestCancel(task, reason)
  }

  claim(task: Task): boolean {
    this.#resumed.expectNotReading()
    return this.#ledger.claim(task)
  }

  /**
   * Opens a claimed task whose work is not known yet, and emits TaskCreated. The task can be
   * awaited and canceled. If its signal is already aborted, the task has ended on return.
   */
  defer(task: Task, opening: OpenTaskOptions): Entry {
    this.#beginning.end()
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

  end(entry: Entry, end: UndispatchedOutcome, between?: () => void): void {
    this.#ledger.end(entry, end, between)
  }

  emit<Fields extends object>(
    eventClass: EventClass<string, Fields>,
    fields: Omit<TrustedFields, 'session_id'> & Fields,
  ): void {
    this.#ledger.emitter.emit(eventClass, fields)
  }

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
    // Waits for admission before the backends are released, because a released backend would refuse
    // the tasks that are still being checked.
    if (admitted !== null) await waitUntilDeadline(deadline, () => admitted)
    // Reports recorded results before the backends are released, so that remote backends can remove
    // them.
    if (this.#recordedAttempts.hasPending)
      await waitUntilDeadline(deadline, () => this.#recordedAttempts.settle())
    const released = this.#forEachBinding(async ({ connection }) => {
      await waitUntilDeadline(deadline, () => connection.release(closeReason))
      await waitUntilDeadline(deadline, () => this.#recordedAttempts.seal(connection))
    })
    // After the releases have begun, so that no backend begins a run that never was.
    this.#beginning.end()
    await released
    // Stops the poller while the backends are still open, because they deliver the last samples of
    // their nodes.
    const poller = isOverdue ? undefined : this.#telemetry?.poller
    if (poller !== undefined) await waitUntilDeadline(deadline, () => poller.stop())
    if (!keepBackends) {
      await this.#forEachBinding(({ backend }) =>
        waitUntilDeadline(deadline, () => backend.close()),
      )
    }
    await waitUntilDeadline(deadline, () => this.#recordedAttempts.close())
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

type SessionTelemetryParts = TelemetryOptions & Required<Pick<TelemetryOptions, 'clock' | 'log'>>

class SessionTelemetry extends TelemetryManager {
  /** `start()` does not start the poller. The session does, when its backends have been added. */
  readonly poller: ResourcePoller
  readonly #clock: Clock
  #follower: OutputFollower | null = null

  constructor(options: SessionTelemetryParts, record: RecordParts, pollSeconds: number) {
    super(options, record)
    const { clock, log, sessionId } = options
    const parts = { clock, log, sessionId, sink: this, intervalSeconds: pollSeconds }
    this.poller = new ResourcePoller({ ...parts, loopDelay: new LoopDelay() })
    this.#clock = clock
  }

  followOutputs(find: OutputFollowerParts['find']): void {
    if (this.checkpointFile === null) return
    this.#follower = new OutputFollower({ clock: this.#clock, record: this.checkpointFile, find })
    this.#follower.start()
  }

  keepValue(uid: string, value: unknown): void {
    this.keepInRecord(uid, value)
  }

  /** Polls a last time before SessionEnded, even if the application itself stops telemetry. */
  protected override async onStop(): Promise<void> {
    await this.poller.stop()
    await this.#follower?.stop()
    await super.onStop()
  }
}

const isNodeNotice = (notice: Notice): notice is NodeNotice =>
  notice.kind === 'sample' || notice.kind === 'node-joined' || notice.kind === 'node-left'

const closeReason = 'session closed'

async function waitUntilDeadline(
  deadline: Promise<void>,
  step: () => Promise<unknown>,
): Promise<void> {
  try {
    await Promise.race([step(), deadline])
  } catch {
    // The ledger cancels the tasks that the backend did not end.
  }
}
