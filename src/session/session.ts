/** The public face of a session: it checks what callers give and leaves the rest to its core. */

import type { AnyTask, Backend } from '../backends/backend.ts'
import type { ResumedRecord, ResumeOptions } from '../core/resume/resume-options.ts'
import { SessionCore } from '../core/session-core.ts'
import {
  type CloseOptions,
  expectBackend,
  findCloseProblem,
  resolveSessionOptions,
  sessionOptionNames,
  type SessionOptions,
  type SessionTelemetryOptions,
} from '../core/session-options.ts'
import { expectKnownKeys, expectObject, expectString } from '../foundation/options.ts'
import { invalid, notAnArray } from '../foundation/options.ts'
import { Task } from '../tasks/task.ts'
import type { TelemetryManager } from '../telemetry/manager.ts'
import { waitForAll, type WaitOptions } from './wait.ts'

export type {
  CloseOptions,
  SessionOptions,
  SessionTelemetryOptions,
} from '../core/session-options.ts'
export type { ResumedRecord, ResumeOptions } from '../core/resume/resume-options.ts'
export type { WaitOptions } from './wait.ts'

/**
 * Holds backends, accepts tasks, and closes everything in order, also by `await using`.
 *
 * @example
 * const local = await ConcurrentBackend.create({ workers: 4 })
 * await using session = new Session([local])
 * await session.startTelemetry({ checkpointPath: './telemetry' })
 * const task = new ComputeTask({ executable: 'date' })
 * await session.submitTasks([task])
 * console.log((await task).stdout)
 */
export class Session implements AsyncDisposable {
  readonly #core: SessionCore

  constructor(backends: readonly Backend[], options: SessionOptions = {}) {
    expectKnownKeys('Session', expectObject('options', options), sessionOptionNames)
    this.#core = new SessionCore(resolveSessionOptions(options))
    if (!Array.isArray(backends)) {
      throw notAnArray('backends', 'backends', backends, 'new Session([backend])')
    }
    const checked = backends.map((one: unknown, at) => expectBackend(`backends[${at}]`, one))
    this.#core.addBackends(checked)
  }

  /** Names the session in events and files. */
  get id(): string {
    return this.#core.id
  }

  /** In the order in which they were given and added. */
  get backends(): readonly Backend[] {
    return this.#core.backends
  }

  /** The telemetry that `startTelemetry` started, if any. */
  get telemetry(): TelemetryManager | null {
    return this.#core.telemetry
  }

  /** Backends can be added at any time before `close()`. */
  addBackend(backend: Backend): void {
    this.#core.addBackend(backend)
  }

  /**
   * Continues the run of a record: tasks that are DONE there end at once with what they returned,
   * all others run. Before `startTelemetry` and the first submission, else `StateError`. The
   * session takes the id of the record, and its own record names the resumed one. Rejects with
   * `CheckpointError` for a record that is damaged, incomplete or in use.
   */
  async resume(file: string, options: ResumeOptions = {}): Promise<ResumedRecord> {
    return this.#core.resume(file, options)
  }

  /** Starts telemetry for this session; its events begin with SessionStarted. */
  async startTelemetry(options: SessionTelemetryOptions = {}): Promise<TelemetryManager> {
    return this.#core.startTelemetry(options)
  }

  /**
   * Submits all of the tasks or none, and resolves with them once their backends have them. An
   * error names every task and field that is wrong. Far ahead of the backends, it waits.
   */
  async submitTasks<const T extends readonly AnyTask[]>(tasks: T): Promise<T> {
    await this.#core.submit(tasks)
    return tasks
  }

  /** Resolves with the tasks when all have ended, whatever their end. A time-out ends no task. */
  async waitTasks<const T extends readonly AnyTask[]>(
    tasks: T,
    options: WaitOptions = {},
  ): Promise<T> {
    await waitForAll(this.#core, tasks, options)
    return tasks
  }

  /** Ends a task; `true` the first time, `false` once it has ended or its end was asked for. */
  cancel(task: AnyTask, reason = 'canceled by the caller'): boolean {
    if (!(task instanceof Task)) throw invalid('task', 'a task', task)
    return this.#core.cancel(task, expectString('reason', reason))
  }

  /**
   * Cancels what has not ended, closes the backends, then stops telemetry: what closing cancels is
   * recorded. Idempotent, same promise, complete when it resolves.
   */
  close(options: CloseOptions = {}): Promise<void> {
    const problem = findCloseProblem('close', options)
    return problem === null ? this.#core.close(options) : Promise.reject(problem)
  }

  /** For `await using`: calls `close()`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}
