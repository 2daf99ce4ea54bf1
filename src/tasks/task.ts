/** The base of all tasks: awaitable, with a uid and a state that only the session changes. */

import { StateError, type TuttiError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import { announceWait } from '../foundation/task-context.ts'
import type { TaskState } from './lifecycle.ts'
import {
  claimRecord,
  endNumber,
  type ProgramOutput,
  findRecord,
  type TaskHolder,
  TaskRecord,
} from './task-record.ts'
import { generateUid, type RetryPolicy, type TaskFields } from './task-fields.ts'
import type { FinishReason } from './spec.ts'

/** The `task_type` in events: a program, a function, or a prompt. */
export type TaskKind = 'compute' | 'function' | 'ai'

/** Options that few tasks have. All other tasks share one object, to save memory. */
interface RareOptions {
  readonly name: string | null
  readonly signal: AbortSignal | null
  readonly attributes: JsonObject | null
}

const noRareOptions: RareOptions = Object.freeze({ name: null, signal: null, attributes: null })

export abstract class Task<T = unknown> implements PromiseLike<T> {
  abstract readonly kind: TaskKind
  abstract readonly timeoutSeconds: number | null
  abstract readonly priority: number
  /** The display name, by which views, commands and reports group tasks. */
  abstract readonly name: string
  readonly uid: string
  /** The retry options, with defaults filled in. */
  readonly retryPolicy: RetryPolicy
  readonly #requestedBackend: string | null
  readonly #rareOptions: RareOptions
  /** `null` until a ledger claims the task. */
  #record: TaskRecord | null = null

  constructor(fields: TaskFields) {
    this.uid = fields.uid ?? generateUid()
    this.#requestedBackend = fields.backend
    this.retryPolicy = fields.retries
    const { name, signal, attributes } = fields
    const hasOnlyDefaults = name === null && signal === null && attributes === null
    this.#rareOptions = hasOnlyDefaults ? noRareOptions : { name, signal, attributes }
  }

  protected get givenName(): string | null {
    return this.#rareOptions.name
  }

  /** The option `signal`: aborting it cancels the task. `null` if the option was not given. */
  get signal(): AbortSignal | null {
    return this.#rareOptions.signal
  }

  /** The option `attributes`, which is added to the task's events; `null` if not given. */
  get attributes(): JsonObject | null {
    return this.#rareOptions.attributes
  }

  /** The maximum number of retries. */
  get retries(): number {
    return this.retryPolicy.times
  }

  /**
   * When the next attempt is due, in wall-clock seconds; `null` unless the task waits for a retry.
   * A task that has started stays RUNNING while it waits.
   */
  get retryAt(): number | null {
    return this.#record?.holder?.retryAt ?? null
  }

  /** The assigned backend; before the assignment, the option `backend`. */
  get backend(): string | null {
    return this.#record?.backend ?? this.#requestedBackend
  }

  /** CREATED until the task is submitted; DONE, FAILED or CANCELED when it has ended. */
  get state(): TaskState {
    return this.#record?.state ?? 'CREATED'
  }

  /** Why the task failed or was canceled; `null` otherwise. */
  get error(): TuttiError | null {
    return this.#record?.error ?? null
  }

  /** The value that awaiting returns; `undefined` unless the task is DONE. */
  protected get value(): T | undefined {
    return this.#record?.value as T | undefined
  }

  /**
   * Why the answers of a prompt ended; `undefined` for other tasks and until the prompt is DONE.
   */
  protected get finishReasons(): readonly FinishReason[] | undefined {
    return this.#record?.finishReasons
  }

  /** The output of a failed or canceled program. A successful one has its output in `value`. */
  protected get unsuccessfulOutput(): ProgramOutput | undefined {
    return this.#record?.output
  }

  /**
   * Settles when the task ends. The promise is created lazily, so a task that nobody awaits raises
   * no unhandledRejection.
   */
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#promise().then(onFulfilled, onRejected)
  }

  /**
   * Claims the task for `owner`. Returns the record through which `owner` writes its state, or
   * `null` if the task is already claimed.
   *
   * @internal
   */
  [claimRecord](owner: TaskHolder): TaskRecord | null {
    if (this.#record !== null && !this.#record.isWithdrawn) return null
    this.#record = new TaskRecord(owner)
    return this.#record
  }

  /**
   * The record of a task that `owner` has claimed and that has not ended; `null` otherwise.
   *
   * @internal
   */
  [findRecord](owner: object): TaskRecord | null {
    return this.#record?.holder?.ledger === owner ? this.#record : null
  }

  /** @internal */
  get [endNumber](): number {
    return this.#record?.endNumber ?? 0
  }

  #promise(): Promise<T> {
    if (this.#record === null || this.#record.isWithdrawn) {
      return Promise.reject(notSubmittedError(this.uid, 'was awaited before it was submitted'))
    }
    if (!this.#record.hasEnded) announceWait()
    return this.#record.promise() as Promise<T>
  }
}

/** The error for awaiting a task that no session has accepted. */
export function notSubmittedError(uid: string, what: string, cause?: unknown): StateError {
  return new StateError(`task ${uid} ${what}`, {
    hint: 'Call `await session.submitTasks([task])` first.',
    ...(cause === undefined ? {} : { cause }),
  })
}
