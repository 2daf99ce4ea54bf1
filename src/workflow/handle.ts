/** The handle that a call in a workflow returns. It can be awaited, and passed as an argument. */

import type { Entry, TaskOwner, Work } from '../core/entry.ts'
import type { RecordedTask, TaskInputs } from '../core/resume/recorded-tasks.ts'
import { StateError } from '../foundation/errors.ts'
import { expectString } from '../foundation/options.ts'
import { currentTask } from '../foundation/task-context.ts'
import type { Outcome } from '../tasks/task-record.ts'
import { Task, type TaskKind } from '../tasks/task.ts'
import type { GraphNode } from './graph.ts'
import type { Plan } from './plan.ts'
import type { OpenScope, RunContext } from './run-context.ts'
import type { CallLabels } from './task-options.ts'
import type { Handle, handleBrand } from './task-function.ts'

const emptyList: readonly never[] = Object.freeze([])

export interface HandleOwner {
  readonly id: string
  cancel(handle: EngineHandle, reason: string): boolean
  /** Called once, when the run's task has ended. */
  ended(run: Run, outcome: Outcome): void
  hasChanged(run: Run): boolean
  /** Whether the running task is the handle's task. Called only if both have the same uid. */
  isInside(handle: EngineHandle): boolean
}

/** The task of one call. Its work is unknown until its dependencies have ended. */
export class EngineHandle<T = unknown> extends Task<T> implements Handle<T> {
  declare readonly [handleBrand]: true
  readonly plan: Plan
  readonly owner: HandleOwner
  /** The run of the task; `null` once the task has ended. */
  run: Run | null = null
  /** Identifies the call. `null` until it is computed, and for a call that cannot be compared. */
  definitionHash: string | null = null
  /**
   * Identifies a call without a hash by its function, its enclosing body, and its number among
   * equal calls. Empty for all other calls.
   */
  place = ''
  /** The same task in the resumed record; `null` if the record does not have it. */
  recorded: RecordedTask | null = null
  /** Whether the task ended as recorded; `null` while that is undecided. */
  isFromRecord: boolean | null = null
  /**
   * The recorded tasks whose values the call receives; `null` if one of these tasks runs again.
   */
  inputs: TaskInputs['enclosing'] = emptyList
  /** The first canceled task on the chain of dependencies; `null` if no dependency was canceled. */
  canceledWith: EngineHandle | null = null

  /** `labels` replaces the generated uid and the name of the wrapped function. */
  constructor(plan: Plan, owner: HandleOwner, labels: CallLabels | null = null) {
    super(labels === null ? plan.options.task : { ...plan.options.task, ...labels })
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

  get label(): string {
    return this.givenName ?? this.plan.label
  }

  get result(): T | undefined {
    return this.value
  }

  get [Symbol.toStringTag](): string {
    return 'Handle'
  }

  /** Rejects if the body of this task awaits the handle, because that would never resolve. */
  override then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    const isSameUid = this.run !== null && currentTask()?.uid === this.uid
    if (!isSameUid || !this.owner.isInside(this)) {
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

export interface CallSite {
  readonly context: RunContext
  readonly receiver: unknown
  readonly args: readonly unknown[]
}

export class Run implements GraphNode<Run>, TaskOwner {
  readonly handle: EngineHandle
  readonly context: RunContext
  readonly receiver: unknown
  readonly args: readonly unknown[]
  /** The arguments with values in place of handles; `null` until all values are known. */
  values: readonly unknown[] | null = null
  work: Work | null = null
  /** Set when the task is opened, directly after the run was created. */
  entry!: Entry
  /** The monotonic time of the call; 0 if the call cannot have dependencies. */
  createdMs = 0
  dependencyCount = 0
  /** Set when a stored result is looked up: if the memo then calls `run`, no result is stored. */
  mustRun = false
  failedDependency: EngineHandle | null = null
  /** The scope that the run must leave when it ends. */
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
