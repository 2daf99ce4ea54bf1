/** What a call in a workflow returns: awaitable, and a dependency wherever it is passed. */

import type { Entry, TaskOwner, Work } from '../core/entry.ts'
import { StateError, type TuttiError } from '../foundation/errors.ts'
import { expectString } from '../foundation/options.ts'
import { currentTask } from '../foundation/task-context.ts'
import type { TaskState } from '../tasks/lifecycle.ts'
import type { Outcome } from '../tasks/task-record.ts'
import { Task, type TaskKind } from '../tasks/task.ts'
import type { GraphNode } from './graph.ts'
import type { Plan } from './plan.ts'
import type { RunContext } from './run-context.ts'
import type { OpenScope } from './scopes.ts'

const none: readonly never[] = Object.freeze([])

/** A type-level brand: no such value exists. */
declare const mark: unique symbol

/** Any type that is not a handle. */
interface NoHandle {
  readonly [mark]?: never
}

/**
 * A task of a workflow. Awaiting it gives its value; passed as an argument, it is a dependency and
 * is replaced by its value. A failed handle that is never awaited raises no unhandledRejection.
 */
export interface Handle<T> extends Promise<T> {
  /** Exists for the compiler only: distinguishes a handle from values with the same members. */
  readonly [mark]: true
  readonly uid: string
  /** The label for people: the option `name`, or the function's name. */
  readonly name: string
  readonly state: TaskState
  /** Why it failed or was canceled; `null` otherwise. */
  readonly error: TuttiError | null
  /** When its next attempt is due, in wall-clock seconds, while it waits for one; else `null`. */
  readonly retryAt: number | null
  /**
   * Cancels the task and its dependents, and for a block also the tasks created inside. Returns
   * `true` once, and `false` after its end.
   */
  cancel(reason?: string): boolean
}

/** A value, a handle of it, or an array or object that holds handles in place of values. */
export type Deferrable<T> = Handle<T> | DeferrableParts<T>

/**
 * `NoHandle` keeps a handle from passing for an object type with the same members. Arrays are
 * matched before objects: recursive types would not terminate otherwise.
 */
type DeferrableParts<T> = T extends Whole
  ? T & NoHandle
  : T extends readonly (infer E)[]
    ? number extends T['length']
      ? (T | readonly Deferrable<E>[]) & NoHandle
      : (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NoHandle
    : T extends object
      ? (T | { readonly [K in keyof T]: Deferrable<T[K]> }) & NoHandle
      : T

/** Types that are not searched for handles. */
type Whole =
  | ((...args: never[]) => unknown)
  | Date
  | RegExp
  | Error
  | ArrayBufferView
  | ArrayBufferLike
  | ReadonlyMap<unknown, unknown>
  | ReadonlySet<unknown>
  | PromiseLike<unknown>

/** The arguments of a function, each of which may be a handle or hold some. */
export type DeferrableArgs<A extends readonly unknown[]> = {
  readonly [K in keyof A]: Deferrable<A[K]>
}

/** A wrapped function: its arguments may be handles, and it returns a handle at once. */
export type TaskFunction<A extends readonly unknown[], T> = (
  ...args: DeferrableArgs<A>
) => Handle<T>

/** The engine that a handle belongs to. */
export interface HandleOwner {
  /** The engine's id, for messages. */
  readonly id: string
  cancel(handle: EngineHandle, reason: string): boolean
  /** Called once, when the run's task has ended. */
  ended(run: Run, outcome: Outcome): void
  /** Whether its arguments differ from those that were recorded. */
  hasChanged(run: Run): boolean
}

/** The task of one call; what it runs is known once its dependencies have ended. */
export class EngineHandle<T = unknown> extends Task<T> implements Handle<T> {
  declare readonly [mark]: true
  readonly plan: Plan
  readonly owner: HandleOwner
  /** The engine's data about the handle; released at its end. */
  run: Run | null = null
  /** Identifies the call; `null` while it is not recorded, and without comparable arguments. */
  definitionHash: string | null = null
  /**
   * For a call without a hash: what is known of it, and its number among equal ones; else empty.
   */
  place = ''
  /** Its row in the resumed record; 0 for none. */
  row = 0
  /** Whether it ended with the recorded result; `null` while that is undecided. */
  isFromRecord: boolean | null = null
  /** Rows of the tasks that it gets values from; `null` if one of them runs again. */
  inputs: readonly number[] | null = none
  /** The task whose cancellation canceled it, directly or through others. */
  canceledWith: EngineHandle | null = null

  constructor(plan: Plan, owner: HandleOwner) {
    super(plan.options.task)
    this.plan = plan
    this.owner = owner
  }

  get kind(): TaskKind {
    return this.plan.kind
  }

  get timeoutSeconds(): number | null {
    return this.plan.options.task.timeoutSeconds
  }

  get priority(): number {
    return this.plan.options.task.priority
  }

  get name(): string {
    return this.plan.options.name
  }

  /** Its value, once it is DONE. */
  get result(): T | undefined {
    return this.value
  }

  get [Symbol.toStringTag](): string {
    return 'Handle'
  }

  /** Rejects in its own body, which would wait for ever. Handles have only generated uids. */
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.run === null || currentTask()?.uid !== this.uid) {
      return super.then(onFulfilled, onRejected)
    }
    return Promise.reject(selfWaitError(this)).then(onFulfilled, onRejected)
  }

  cancel(reason = 'canceled by the caller'): boolean {
    return this.owner.cancel(this, expectString('reason', reason))
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onRejected)
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then(null).finally(onFinally)
  }
}

const selfWaitError = ({ name, uid }: EngineHandle): StateError =>
  new StateError(`${name} (${uid}) awaits its own handle, so that neither could end`, {
    code: 'SelfWaitError',
    hint: 'Return the value; only callers of the task await its handle.',
  })

/** A call: its context, receiver and arguments. */
export interface CallSite {
  readonly context: RunContext
  /** The value of `this` in the body. */
  readonly receiver: unknown
  /** As they were passed, with handles inside. */
  readonly args: readonly unknown[]
}

/** The engine's data about a handle that has not ended. */
export class Run implements GraphNode<Run>, TaskOwner {
  readonly handle: EngineHandle
  readonly context: RunContext
  readonly receiver: unknown
  readonly args: readonly unknown[]
  /** The arguments with values in place of handles; `null` while some are missing. */
  values: readonly unknown[] | null = null
  /** What to run; `null` until it is known. */
  work: Work | null = null
  entry: Entry | null = null
  /** The time of the call; 0 if it can have no dependencies. */
  createdMs = 0
  dependencyCount = 0
  /** Whether the memo was asked and has no result. */
  mustRun = false
  /** The dependency that did not succeed. */
  failedDependency: EngineHandle | null = null
  /** The open scope that it belongs to, found by the id in its context. */
  scope: OpenScope | null = null
  waiting: GraphNode<Run>['waiting'] = null
  dependents: Run[] | null = null

  constructor(handle: EngineHandle, { context, receiver, args }: CallSite) {
    this.handle = handle
    this.context = context
    this.receiver = receiver
    this.args = args
  }

  get blockUid(): string | null {
    return this.context.block?.uid ?? null
  }

  ended(outcome: Outcome): void {
    this.handle.owner.ended(this, outcome)
  }

  hasChanged(): boolean {
    return this.handle.owner.hasChanged(this)
  }
}
