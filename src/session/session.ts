/** The public class `Session`, which validates arguments and calls `SessionCore`. */

import type { AnyTask, Backend } from '../backends/backend.ts'
import type { ResumedRecord, ResumeOptions } from '../core/resume/resumption.ts'
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
import {
  expectKnownKeys,
  expectObject,
  expectString,
  invalid,
  notAnArray,
} from '../foundation/options.ts'
import { Task } from '../tasks/task.ts'
import type { TelemetryManager } from '../telemetry/manager.ts'
import { type MapOptions, mapTasks } from './map.ts'
import { type CompletedTasks, EndedTasks, waitForAll, type WaitOptions } from './wait.ts'

/**
 * Runs tasks on backends. `close()` and `await using` close the backends, and then telemetry.
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
    const validBackends = backends.map((one: unknown, at) => expectBackend(`backends[${at}]`, one))
    this.#core.addBackends(validBackends)
  }

  /** The session's name in events and files. */
  get id(): string {
    return this.#core.id
  }

  /** The backends in the order in which they were added. */
  get backends(): readonly Backend[] {
    return this.#core.backends
  }

  /** The running telemetry; `null` before `startTelemetry`. */
  get telemetry(): TelemetryManager | null {
    return this.#core.telemetry
  }

  /** Adds a backend, at any time before `close()`. */
  addBackend(backend: Backend): void {
    this.#core.addBackend(backend)
  }

  /**
   * Continues a recorded run. Tasks that are DONE in the record end immediately with the recorded
   * results; all other tasks run. The session takes the id of the record, and its new record refers
   * to the resumed one. Rejects with a `StateError` after `startTelemetry` or the first submission,
   * and with a `CheckpointError` if the record is damaged, incomplete or in use.
   */
  async resume(file: string, options: ResumeOptions = {}): Promise<ResumedRecord> {
    return this.#core.resume(file, options)
  }

  /** Starts the telemetry of this session. Its first event is SessionStarted. */
  async startTelemetry(options: SessionTelemetryOptions = {}): Promise<TelemetryManager> {
    return this.#core.startTelemetry(options)
  }

  /**
   * Submits all of the tasks or none. Resolves with the list when the backends have received the
   * tasks; waits while too many tasks are open. If tasks are invalid, rejects with an error that
   * names each of them and the wrong fields.
   */
  async submitTasks<const T extends readonly AnyTask[]>(tasks: T): Promise<T> {
    await this.#core.submit(tasks)
    return tasks
  }

  /**
   * Resolves with the list when all tasks have ended, in any state. A time-out ends only the wait.
   */
  async waitTasks<const T extends readonly AnyTask[]>(
    tasks: T,
    options: WaitOptions = {},
  ): Promise<T> {
    await waitForAll(this.#core, tasks, options)
    return tasks
  }

  /**
   * Iterates over the tasks in the order in which they end, including failed and canceled ones.
   * Tasks that have already ended come first. A task that is listed twice is returned once.
   *
   * @example
   * for await (const task of session.asCompleted(tasks)) console.log(task.uid, task.state)
   */
  asCompleted<T extends AnyTask>(
    tasks: readonly T[],
    options: WaitOptions = {},
  ): CompletedTasks<T> {
    return new EndedTasks(this.#core, tasks, options)
  }

  /**
   * Runs a function task for each item, and resolves with the values in the order of the list when
   * all tasks have ended. If tasks failed, rejects with the error of the first failed task in the
   * list. With `settle: true`, resolves with all outcomes, as `Promise.allSettled` does.
   *
   * @example
   * const squares = await session.map((x: number) => x * x, [1, 2, 3])
   */
  map<I, T>(
    fn: (item: I) => T | PromiseLike<T>,
    list: readonly I[],
    options: MapOptions<I> & { readonly settle: true },
  ): Promise<PromiseSettledResult<T>[]>
  map<I, T>(
    fn: (item: I) => T | PromiseLike<T>,
    list: readonly I[],
    options?: MapOptions<I> & { readonly settle?: false },
  ): Promise<T[]>
  map<I, T>(
    fn: (item: I) => T | PromiseLike<T>,
    list: readonly I[],
    options: MapOptions<I>,
  ): Promise<T[] | PromiseSettledResult<T>[]>
  async map<I, T>(
    fn: (item: I) => T | PromiseLike<T>,
    list: readonly I[],
    options: MapOptions<I> = {},
  ): Promise<T[] | PromiseSettledResult<T>[]> {
    const tasks = await mapTasks(this.#core, fn, list, options)
    const outcomes = tasks.map(({ error, returnValue }): PromiseSettledResult<T> => {
      if (error !== null && options.settle !== true) throw error
      if (error !== null) return { status: 'rejected', reason: error }
      return { status: 'fulfilled', value: returnValue as T }
    })
    return options.settle === true ? outcomes : tasks.map((task) => task.returnValue as T)
  }

  /** Cancels a task. Returns `false` if it has ended or was already canceled. */
  cancel(task: AnyTask, reason = 'canceled by the caller'): boolean {
    if (!(task instanceof Task)) throw invalid('task', 'a task', task)
    return this.#core.cancel(task, expectString('reason', reason))
  }

  /**
   * Cancels the open tasks, closes the backends, and then stops telemetry, so that the
   * cancellations are recorded. Idempotent: returns the same promise each time.
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
