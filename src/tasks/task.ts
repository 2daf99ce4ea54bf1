/** What every task is: awaitable, identified, and written to by nobody but the ledger. */

import { StateError, type TuttiError } from '../foundation/errors.ts'
import { type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  invalid,
} from '../foundation/options.ts'
import { announceWait } from '../foundation/task-context.ts'
import type { TaskState } from './lifecycle.ts'
import { expectOwnUid, generateUid } from './uid.ts'

/** `task_type` in events: an executable, a function, or a prompt. */
export type TaskKind = 'compute' | 'function' | 'ai'

export interface TaskOptions {
  /** Unique in the session. Default: generated. */
  readonly uid?: string
  /** The name of the backend that is to run it. */
  readonly backend?: string
  /** Seconds that an attempt may run, from the start of execution. Default: no limit. */
  readonly timeoutSeconds?: number
  /** Cancels the task. */
  readonly signal?: AbortSignal
  /** Further attempts after one that failed. Default 0. */
  readonly retries?: number
  /** Higher runs earlier. Default 0. */
  readonly priority?: number
  /** Carried into the task's events. */
  readonly attributes?: object
}

export const taskOptionNames = [
  'uid',
  'backend',
  'timeoutSeconds',
  'signal',
  'retries',
  'priority',
  'attributes',
]

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
  /** Of a uid as they are generated; `null` of any other. */
  readonly uidNumber: number | null
  readonly timeoutSeconds: number | null
  readonly signal: AbortSignal | null
  readonly retries: number
  readonly priority: number
  readonly attributes: JsonObject | null
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

  constructor(options: TaskOptions) {
    const { uid, backend, timeoutSeconds, signal, retries = 0, priority = 0 } = options
    const { text, number } = uid === undefined ? generateUid() : expectOwnUid(uid)
    this.uid = text
    this.uidNumber = number
    this.#backend = backend === undefined ? null : expectBackendName(backend)
    this.timeoutSeconds =
      timeoutSeconds === undefined
        ? null
        : expectNumber('timeoutSeconds', timeoutSeconds, { above: 0, max: 2 ** 31 })
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw invalid('signal', 'an AbortSignal', signal)
    }
    this.signal = signal ?? null
    this.retries = expectInteger('retries', retries, { min: 0 })
    this.priority = expectNumber('priority', priority)
    this.attributes = options.attributes === undefined ? null : toAttributes(options.attributes)
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

/** Names that the library's own attributes have in events. */
const reservedAttributes = new Set([
  'executable',
  'task_type',
  'error_type',
  'incomplete_lifecycle',
  'definition_hash',
  'dependencies',
  'workflow_id',
  'worker_id',
  'attempt',
  'cpu_seconds',
  'peak_memory_bytes',
  'exit_code',
  'signal',
  'error_message',
  'error_stack',
  'reason',
  'stdout_tail',
  'stderr_tail',
  'result',
  'result_omitted',
])

function toAttributes(given: unknown): JsonObject {
  const attributes = toJsonObject(expectObject('attributes', given))
  for (const name of Object.keys(attributes)) {
    if (reservedAttributes.has(name)) {
      throw invalid(`attributes.${name}`, 'a name that the library does not use itself', name)
    }
  }
  return attributes
}

function expectBackendName(backend: unknown): string {
  if (typeof backend === 'string' && backend !== '') return backend
  throw invalid('backend', "a backend's name", backend)
}

/** The options as a plain record, with unknown ones refused. */
export function expectTaskOptions(
  className: string,
  options: unknown,
  known: readonly string[],
): void {
  expectKnownKeys(className, expectObject('options', options), known)
}
