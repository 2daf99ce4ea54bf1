/** What every task is: awaitable, identified, and written to by nobody but the ledger. */

import { StateError, type TuttiError } from '../foundation/errors.ts'
import type { JsonObject } from '../foundation/json-value.ts'
import { announceWait } from '../foundation/task-context.ts'
import type { TaskState } from './lifecycle.ts'
import type { TaskFields } from './task-fields.ts'
import { generateUid, type Uid } from './uid.ts'

/** `task_type` in events: an executable, a function, or a prompt. */
export type TaskKind = 'compute' | 'function' | 'ai'

/** How a task ended. */
export type Outcome =
  | { readonly state: 'DONE'; readonly value: unknown }
  | { readonly state: 'FAILED' | 'CANCELED'; readonly error: TuttiError }

/** How the ledger, the only writer of task state, writes it. Nobody else may import this. */
export interface LedgerAccess {
  /** Gives the task a holder; `false` when it has or had one. From now on it can be awaited. */
  bind(task: Task, holder: object): boolean
  /** Takes that back: whoever awaits the task hears why, and it may be submitted again. */
  unbind(task: Task, cause: unknown): void
  /** What holds the task from now on, until it ends. */
  setHolder(task: Task, holder: object): void
  /** `null` before the task is bound. */
  holderOf(task: Task): object | null
  uidOf(task: Task): Uid
  setState(task: Task, state: TaskState): void
  setBackend(task: Task, name: string): void
  settle(task: Task, outcome: Outcome): void
}

export let ledgerAccess: LedgerAccess

/** Holds the tasks that have ended. */
const past = Object.freeze({})

export abstract class Task<T = unknown> implements PromiseLike<T> {
  abstract readonly kind: TaskKind
  readonly uid: string
  readonly timeoutSeconds: number | null
  readonly signal: AbortSignal | null
  readonly retries: number
  readonly priority: number
  readonly attributes: JsonObject | null
  /** Of a uid as they are generated; `null` of any other. */
  readonly #uidNumber: number | null
  #backend: string | null
  #state: TaskState = 'CREATED'
  #holder: object | null = null
  #value: unknown
  #error: TuttiError | null = null
  #waiting: PromiseWithResolvers<unknown> | null = null

  static {
    ledgerAccess = {
      bind(task, holder) {
        if (task.#holder !== null) return false
        task.#holder = holder
        return true
      },
      unbind(task, cause) {
        task.#holder = null
        task.#waiting?.reject(notSubmitted(task, 'was not submitted', cause))
        task.#waiting = null
      },
      setHolder(task, holder) {
        task.#holder = holder
      },
      holderOf: (task) => task.#holder,
      uidOf: (task) => ({ text: task.uid, number: task.#uidNumber }),
      setState(task, state) {
        task.#state = state
      },
      setBackend(task, name) {
        task.#backend = name
      },
      settle(task, outcome) {
        task.#settle(outcome)
      },
    }
  }

  /** `inNameOf`: one that is registered and awaited in its place. */
  constructor(fields: TaskFields, inNameOf: Task | null = null) {
    const { text, number } =
      inNameOf === null ? (fields.uid ?? generateUid()) : ledgerAccess.uidOf(inNameOf)
    this.uid = text
    this.#uidNumber = number
    this.#backend = fields.backend
    this.timeoutSeconds = fields.timeoutSeconds
    this.signal = fields.signal
    this.retries = fields.retries
    this.priority = fields.priority
    this.attributes = fields.attributes
  }

  /** The assigned backend, or before that the one that was asked for. */
  get backend(): string | null {
    return this.#backend
  }

  get state(): TaskState {
    return this.#state
  }

  /** Why it failed or was canceled; `null` otherwise. */
  get error(): TuttiError | null {
    return this.#error
  }

  /**
   * The value that awaiting gives; `undefined` before the end and for a task that did not succeed.
   */
  protected get value(): T | undefined {
    return this.#value as T | undefined
  }

  /**
   * Settles when the task ends. A promise is made only for those who wait, so nobody else can miss
   * it.
   */
  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#promise().then(onFulfilled, onRejected)
  }

  #promise(): Promise<T> {
    if (this.#error !== null) return Promise.reject(this.#error)
    if (this.#holder === past) return Promise.resolve(this.#value as T)
    if (this.#holder === null) {
      return Promise.reject(notSubmitted(this, 'was awaited before it was submitted'))
    }
    announceWait()
    this.#waiting ??= Promise.withResolvers()
    return this.#waiting.promise as Promise<T>
  }

  #settle(outcome: Outcome): void {
    this.#holder = past
    if (outcome.state === 'DONE') {
      this.#value = outcome.value
      this.#waiting?.resolve(outcome.value)
    } else {
      this.#error = outcome.error
      this.#waiting?.reject(outcome.error)
    }
    this.#waiting = null
  }
}

function notSubmitted({ uid }: Task, what: string, cause?: unknown): StateError {
  return new StateError(`task ${uid} ${what}`, {
    hint: 'Call `await session.submitTasks([task])` first.',
    ...(cause === undefined ? {} : { cause }),
  })
}
