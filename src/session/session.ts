/** A session's public face, and the order in which its parts begin and end. */

import type { AnyTask, Backend, BackendListener, Job } from '../backends/backend.ts'
import { ResourcePoller } from '../backends/sampling/poller.ts'
import { type Clock, systemClock } from '../foundation/clock.ts'
import { StateError, ValueError } from '../foundation/errors.ts'
import { newUuid } from '../foundation/ids.ts'
import { type Log, processLog } from '../foundation/log.ts'
import {
  expectId,
  expectKnownKeys,
  expectObject,
  expectString,
  invalid,
} from '../foundation/options.ts'
import { type Outcome, Task } from '../tasks/task.ts'
import { TelemetryManager } from '../telemetry/manager.ts'
import type { Seat } from '../core/dispatch-batch.ts'
import { closedError, Intake } from '../core/admission.ts'
import { Attempt } from '../core/entry.ts'
import { Ledger } from '../core/ledger.ts'
import { EventNarrator } from '../core/lifecycle-emitter.ts'
import { Registrar } from '../core/deferred-submission.ts'
import {
  type CloseOptions,
  expectBackend,
  findCloseProblem,
  resolveSessionTelemetry,
  type SessionOptions,
  type SessionTelemetryOptions,
} from './session-options.ts'
import { SignalWatch } from '../core/signals.ts'
import { waitForAll, type WaitOptions } from './wait.ts'

export type { CloseOptions, SessionOptions, SessionTelemetryOptions } from './session-options.ts'
export type { WaitOptions } from './wait.ts'

/** How long a backend may take to end what it runs, before its tasks are written off. */
const closeDeadlineMs = 10_000

type Listen = (owner: object, outcome: Outcome) => void

/** A session's registrar; `listen` hears at once how the tasks end that have an owner. */
export let registrarOf: (session: Session, listen: Listen) => Registrar

/** Holds backends, accepts tasks, and closes everything in order, also by `await using`. */
export class Session implements AsyncDisposable {
  readonly id: string
  readonly #clock: Clock
  readonly #log: Log
  readonly #ledger: Ledger
  readonly #signals: SignalWatch
  readonly #intake: Intake
  readonly #seats: Seat[] = []
  #telemetry: TelemetryManager | null = null
  #poller: ResourcePoller | null = null
  #pollSeconds = 5
  #closing: Promise<void> | null = null
  #listen: Listen = () => {}

  static {
    registrarOf = (session, listen) => {
      session.#listen = listen
      const seats = () => session.#seats
      return new Registrar({ ledger: session.#ledger, signals: session.#signals, seats })
    }
  }

  constructor(backends: readonly Backend[], options: SessionOptions = {}) {
    expectKnownKeys('Session', expectObject('options', options), ['id', 'workDir', 'clock', 'log'])
    const { id, workDir, clock = systemClock, log = processLog } = options
    this.id = id === undefined ? `s-${newUuid().slice(0, 8)}` : expectId('id', id)
    this.#clock = clock
    this.#log = log
    this.#ledger = new Ledger({
      clock,
      sessionId: this.id,
      workDir: workDir === undefined ? null : expectString('workDir', workDir),
      onEnded: (task, outcome, owner) => this.#forget(task, outcome, owner),
    })
    this.#signals = new SignalWatch((task, reason) => this.#ledger.requestCancel(task, reason))
    this.#intake = new Intake({
      clock,
      ledger: this.#ledger,
      signals: this.#signals,
      seats: () => this.#seats,
    })
    if (!Array.isArray(backends)) throw invalid('backends', 'an array of backends', backends)
    const checked = backends.map((one: unknown, at) => expectBackend(`backends[${at}]`, one))
    for (const backend of checked) this.addBackend(backend)
  }

  get backends(): readonly Backend[] {
    return this.#seats.map(({ backend }) => backend)
  }

  /** The telemetry that `startTelemetry` began, if any. */
  get telemetry(): TelemetryManager | null {
    return this.#telemetry
  }

  /** Backends may come at any time before `close()`. */
  addBackend(backend: Backend): void {
    if (this.#closing !== null) throw closedError()
    expectBackend('backend', backend)
    if (this.#seats.some((seat) => seat.backend.name === backend.name)) {
      const text = `the session already has a backend "${backend.name}"`
      throw new ValueError(text, { field: 'backend.name', got: backend.name })
    }
    const listener: BackendListener = {
      report: (job, report) => this.#ledger.record(job, report),
      notice: (notice) => this.#ledger.narrator.noticed(backend.name, notice),
    }
    const session = { id: this.id, closureOf: (job: Job) => Attempt.closureOf(job) }
    this.#seats.push({ backend, connection: backend.connect(listener, session) })
    this.#pollNodesOf(backend)
  }

  /** Starts telemetry for this session; its events begin with SessionStarted. */
  async startTelemetry(options: SessionTelemetryOptions = {}): Promise<TelemetryManager> {
    const { pollSeconds, keepResults, manager } = resolveSessionTelemetry(options)
    if (this.#closing !== null) throw closedError()
    if (this.#telemetry !== null) throw new StateError('telemetry was already started')
    const parts = { sessionId: this.id, clock: this.#clock, log: this.#log }
    const telemetry = new TelemetryManager({ ...manager, ...parts })
    this.#pollSeconds = pollSeconds
    this.#telemetry = telemetry
    await telemetry.start().catch((error: unknown) => {
      this.#telemetry = null
      throw error
    })
    if (this.#closing !== null) throw closedError()
    const sink = telemetry
    const poller = new ResourcePoller({ ...parts, sink, intervalSeconds: pollSeconds })
    this.#poller = poller
    this.#ledger.narrator = new EventNarrator({ ...parts, sink, keepResults })
    for (const { backend } of this.#seats) this.#pollNodesOf(backend)
    await poller.start()
    return telemetry
  }

  /**
   * Submits all of the tasks or none, and resolves with them once they are handed over. An error
   * names every task and field that is wrong. Far ahead of the backends, it waits.
   */
  async submitTasks<const T extends readonly AnyTask[]>(tasks: T): Promise<T> {
    await this.#intake.submit(tasks)
    return tasks
  }

  /** Resolves with the tasks when all have ended, whatever their end. A time-out harms no task. */
  async waitTasks<const T extends readonly AnyTask[]>(
    tasks: T,
    options: WaitOptions = {},
  ): Promise<T> {
    const parts = { ledger: this.#ledger, intake: this.#intake, clock: this.#clock }
    await waitForAll(parts, tasks, options)
    return tasks
  }

  /** Ends a task; `true` the first time, `false` once it has ended or its end was asked for. */
  cancel(task: AnyTask, reason = 'canceled by the caller'): boolean {
    if (!(task instanceof Task)) throw invalid('task', 'a task', task)
    expectString('reason', reason)
    return this.#ledger.requestCancel(task, reason) || this.#intake.requestCancel(task, reason)
  }

  /**
   * Cancels what has not ended, closes the backends, then stops telemetry: what closing cancels is
   * recorded. Idempotent, same promise, complete when it resolves.
   */
  close(options: CloseOptions = {}): Promise<void> {
    const problem = findCloseProblem('close', options)
    if (problem !== null) return Promise.reject(problem)
    this.#closing ??= this.#closeOnce(options)
    return this.#closing
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  async #closeOnce({ keepBackends = false }: CloseOptions): Promise<void> {
    this.#intake.close()
    this.#ledger.beginClosing()
    const reason = 'session closed'
    const { promise: deadline, resolve } = Promise.withResolvers<void>()
    const cancelTimer = this.#clock.after(closeDeadlineMs, resolve)
    await Promise.all(
      this.#seats.map(async ({ backend, connection }) => {
        await within(deadline, () => connection.release(reason))
        if (!keepBackends) await within(deadline, () => backend.close())
      }),
    )
    cancelTimer()
    this.#ledger.cancelRest(reason)
    await this.#poller?.stop()
    await this.#telemetry?.stop()
  }

  #forget(task: Task, outcome: Outcome, owner: object | null): void {
    this.#signals.forget(task)
    this.#intake.makeRoom()
    if (owner !== null) this.#listen(owner, outcome)
  }

  #pollNodesOf({ name, nodes = [] }: Backend): void {
    if (this.#poller === null) return
    for (const node of nodes) {
      const sampler = node.createSampler(this.#pollSeconds)
      this.#poller.add({ backend: name, nodeId: node.nodeId, sampler })
    }
  }
}

/** Gives up on what hangs at the deadline; closing goes on past what fails. */
async function within(deadline: Promise<void>, step: () => Promise<void>): Promise<void> {
  try {
    await Promise.race([step(), deadline])
  } catch {
    // The ledger cancels what the backend did not end.
  }
}
