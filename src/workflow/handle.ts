/** What a call in a workflow returns: awaitable, and a dependency wherever it is passed. */

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
  /** Whether its arguments differ from those that were recorded. */
  hasChanged(run: Run): boolean
  /** Whether the running code, which belongs to a task of the handle's uid, is the handle's. */
  isInside(handle: EngineHandle): boolean
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

  /** `own` is what the call has instead of a generated uid and the wrapper's name. */
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

  /** The name in its events; empty for a prompt without one, which its model names. */
  get label(): string {
    return this.givenName ?? this.plan.label
  }

  /** Its value, once it is DONE. */
  get result(): T | undefined {
    return this.value
  }

  get [Symbol.toStringTag](): string {
    return 'Handle'
  }

  /** Rejects in its own body, which would wait for ever. */
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
