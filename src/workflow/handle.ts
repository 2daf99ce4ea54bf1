/** What a call in a workflow gives back: awaitable, and a dependency wherever it is passed. */

import type { AnyTask } from '../backends/backend.ts'
import type { TuttiError } from '../foundation/errors.ts'
import { expectString } from '../foundation/options.ts'
import type { Entry } from '../core/entry.ts'
import type { TaskState } from '../tasks/lifecycle.ts'
import type { Task } from '../tasks/task.ts'
import type { GraphNode } from './graph.ts'
import type { Plan } from './plan.ts'
import type { OpenScope } from './scopes.ts'

/** A type-level brand: no such value exists. */
declare const mark: unique symbol

/** Any type that is not a handle. */
interface NoHandle {
  readonly [mark]?: never
}

/**
 * A task of a workflow. Awaiting gives its value; passed as an argument, it is waited for and
 * arrives as its value. One that fails and is never awaited harms nobody.
 */
export interface Handle<T> extends Promise<T> {
  /** For types alone: tells it from values that happen to have the same members. */
  readonly [mark]: true
  readonly uid: string
  /** What its events call `executable` when it is created, unless it is a prompt. */
  readonly name: string
  readonly state: TaskState
  /** Why it failed or was canceled; `null` otherwise. */
  readonly error: TuttiError | null
  /**
   * Ends it, and with it what depends on it; `true` once, `false` after its end. A block takes
   * with it what was made inside.
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

/** Types in which no handles are looked for. */
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

/** A wrapped function: its arguments may be handles, and it returns one at once. */
export type TaskFunction<A extends readonly unknown[], T> = (
  ...args: DeferrableArgs<A>
) => Handle<T>

/** The engine that a handle belongs to, as the handle sees it. */
export interface HandleOwner {
  /** The engine's id, for messages. */
  readonly id: string
  cancel(handle: EngineHandle, reason: string): boolean
}

/** Light: its task makes no promise before somebody waits, so no rejection can be unhandled. */
export class EngineHandle<T = unknown> implements Handle<T> {
  declare readonly [mark]: true
  readonly plan: Plan
  readonly owner: HandleOwner
  /** What is registered with the session: the very task that runs, or one that stands for it. */
  readonly task: Task<T>
  /** Let go at its end. */
  run: Run | null = null
  /** Its value, once it is DONE. */
  result: unknown = undefined
  /** The one whose cancellation canceled it, directly or through others. */
  canceledWith: EngineHandle | null = null

  constructor(plan: Plan, owner: HandleOwner, task: Task<T>) {
    this.plan = plan
    this.owner = owner
    this.task = task
  }

  get uid(): string {
    return this.task.uid
  }

  get state(): TaskState {
    return this.task.state
  }

  get error(): TuttiError | null {
    return this.task.error
  }

  get name(): string {
    return this.plan.options.name
  }

  get [Symbol.toStringTag](): string {
    return 'Handle'
  }

  cancel(reason = 'canceled by the caller'): boolean {
    return this.owner.cancel(this, expectString('reason', reason))
  }

  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.task.then(onFulfilled, onRejected)
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onRejected)
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then(null).finally(onFinally)
  }
}

/** Where a handle was made; what its body makes is made there too. */
export interface RunContext {
  readonly scope: OpenScope | null
  readonly block: Attempt | null
}

/** One attempt at the body of a block: what the body makes belongs to it, and to no later one. */
export interface Attempt {
  /** The block's. Not its run: blocks that begin their successors would hold all before them. */
  readonly name: string
  readonly uid: string
  /** What was made inside and has not ended. */
  readonly children: Set<Run>
  /** It did not end well; its body may go on, but what that makes is canceled at once. */
  isOver: boolean
}

/** A call of which it is not known yet what will run. */
export class Draft {
  readonly receiver: unknown
  /** As they were given, with handles inside. */
  readonly args: readonly unknown[]
  /** When it was made. */
  readonly createdMs: number
  dependencyCount: number
  /** The arguments, once they are values. */
  values: readonly unknown[] | null = null
  /** The memo was asked and has answered that it must run. */
  mustRun = false

  constructor(
    receiver: unknown,
    args: readonly unknown[],
    made: { readonly atMs: number; readonly dependencies: number },
  ) {
    this.receiver = receiver
    this.args = args
    this.createdMs = made.atMs
    this.dependencyCount = made.dependencies
  }
}

/** What the engine knows of a handle that has not ended. */
export class Run implements GraphNode<Run> {
  readonly handle: EngineHandle
  readonly context: RunContext
  /** What is to run, or from what that will be made. */
  work: AnyTask | Draft
  entry: Entry | null = null
  /** The dependency that did not end well. */
  doomedBy: EngineHandle | null = null
  /** What it counts in: the open scope of the id that its context names. */
  scope: OpenScope | null = null
  waiting: GraphNode<Run>['waiting'] = null
  dependents: Run[] | null = null

  constructor(handle: EngineHandle, context: RunContext, work: AnyTask | Draft) {
    this.handle = handle
    this.context = context
    this.work = work
  }
}
