/** The handle that a call in a workflow returns: awaitable, and usable as an argument. */

import type { Entry, TaskOwner, Work } from '../core/entry.ts'
import { StateError } from '../foundation/errors.ts'
import { expectString } from '../foundation/options.ts'
import { currentTask } from '../foundation/task-context.ts'
import type { Outcome } from '../tasks/task-record.ts'
import { Task, type TaskKind } from '../tasks/task.ts'
import type { GraphNode } from './graph.ts'
import type { Plan } from './plan.ts'
import type { RunContext } from './run-context.ts'
import type { OpenScope } from './scopes.ts'
import type { CallLabels } from './task-options.ts'
import type { Handle, mark } from './task-function.ts'

const none: readonly never[] = Object.freeze([])

/** The engine that a handle belongs to. */
export interface HandleOwner {
  /** The engine's id, for messages. */
  readonly id: string
  cancel(handle: EngineHandle, reason: string): boolean
  /** Called once, when the run's task has ended. */
  ended(run: Run, outcome: Outcome): void
  /** Whether the arguments of the run differ from those that were recorded. */
  hasChanged(run: Run): boolean
  /** Whether the running code, whose task has the handle's uid, is the handle's own body. */
  isInside(handle: EngineHandle): boolean
}

/** The task of one call. Its work is known once its dependencies have ended. */
export class EngineHandle<T = unknown> extends Task<T> implements Handle<T> {
  declare readonly [mark]: true
  readonly plan: Plan
  readonly owner: HandleOwner
  /** The engine's data about the handle; `null` when the task has ended. */
  run: Run | null = null
  /** Identifies the call; `null` until it is computed, and if the call cannot be compared. */
  definitionHash: string | null = null
  /**
   * Identifies a call without a hash by its function, its place, and its number among such calls;
   * otherwise empty.
   */
  place = ''
  /** The task's row in the resumed record; 0 for none. */
  row = 0
  /** Whether the task ended as recorded; `null` while that is undecided. */
  isFromRecord: boolean | null = null
  /** Rows of the tasks whose values the call receives; `null` if one of them runs again. */
  inputs: readonly number[] | null = none
  /** The dependency whose cancellation canceled this task, directly or indirectly. */
  canceledWith: EngineHandle | null = null

  /** `own` replaces the generated uid and the wrapper's name. */
  constructor(plan: Plan, owner: HandleOwner, own: CallLabels | null = null) {
    super(own === null ? plan.options.task : { ...plan.options.task, ...own })
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
    return this.givenName ?? this.plan.options.name
  }

  /** The name in events; empty for a prompt without a name, for which the model's name is used. */
  get label(): string {
    return this.givenName ?? this.plan.label
  }

  /** The value of the task; `undefined` unless it is DONE. */
  get result(): T | undefined {
    return this.value
  }

  get [Symbol.toStringTag](): string {
    return 'Handle'
  }

  /** Rejects if the task's own body awaits the handle, because that would never resolve. */
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const isOwnUid = this.run !== null && currentTask()?.uid === this.uid
    if (!isOwnUid || !this.owner.isInside(this)) {
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

/** The context, receiver and arguments of a call. */
export interface CallSite {
  readonly context: RunContext
  /** The value of `this` in the body. */
  readonly receiver: unknown
  /** The arguments as they were passed, with handles inside. */
  readonly args: readonly unknown[]
}

/** The engine's data about a handle that has not ended. */
export class Run implements GraphNode<Run>, TaskOwner {
  readonly handle: EngineHandle
  readonly context: RunContext
  readonly receiver: unknown
  readonly args: readonly unknown[]
  /** The arguments with values in place of handles; `null` until all values are known. */
  values: readonly unknown[] | null = null
  /** What to run; `null` until it is known. */
  work: Work | null = null
  entry: Entry | null = null
  /** The time of the call; 0 if the call cannot have dependencies. */
  createdMs = 0
  dependencyCount = 0
  /** Whether the memo was asked: if the run continues after that, it has no stored result. */
  mustRun = false
  /** The dependency that did not succeed. */
  failedDependency: EngineHandle | null = null
  /** The open scope of the call, which it leaves when it has ended. */
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
