/** Tracks the scope and block in which each handle was created, and the open scopes. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { TaskInputs } from '../core/resume/recorded-tasks.ts'
import type { SessionCore } from '../core/session-core.ts'
import { WorkflowEnded, WorkflowStarted } from '../events/library-events.ts'
import { maskSecrets } from '../foundation/secrets.ts'

/** Where a handle was created. The calls in the body of the handle's task inherit the context. */
export interface RunContext {
  /**
   * The chosen uid of the task whose body runs; `null` outside of bodies and for a generated uid.
   */
  readonly uid: string | null
  /** Appended to a chosen uid that an earlier attempt has used. Empty in the first attempt. */
  readonly uidSuffix: string
  readonly scope: OpenScope | null
  readonly block: BlockAttempt | null
  /**
   * The recorded tasks whose values the enclosing bodies receive. `null` if one of these tasks runs
   * again, because calls in the body may then receive different values.
   */
  readonly inputs: TaskInputs['enclosing']
  readonly place: BlockPath
}

/** Identifies the body in which calls are made, and numbers the equal calls in it. */
export class BlockPath {
  /** Distinguishes equal bodies. Empty outside of bodies and for a body that is not recorded. */
  readonly text: string
  #counts: Map<string, number> | null = null

  constructor(text: string) {
    this.text = text
  }

  nextNumber(key: string): number {
    this.#counts ??= new Map()
    const number = (this.#counts.get(key) ?? 0) + 1
    this.#counts.set(key, number)
    return number
  }
}

interface ChildTask {
  cancel(reason: string): unknown
}

/** One attempt of a block's body. It owns the tasks that the body creates. */
export interface BlockAttempt {
  /**
   * A copy, as is `uid`: a reference to the handle would keep all earlier handles of a chain in
   * memory.
   */
  readonly name: string
  readonly uid: string
  readonly children: Set<ChildTask>
  /** Whether the attempt has failed. Its body may still run, but its new tasks are canceled. */
  isFailed: boolean
}

export type EnterContext = <T>(body: () => T) => T

export class RunContexts {
  readonly #storage = new AsyncLocalStorage<RunContext>()
  readonly #rootContext: RunContext = Object.freeze({
    uid: null,
    uidSuffix: '',
    scope: null,
    block: null,
    inputs: Object.freeze([]),
    place: new BlockPath(''),
  })
  readonly #attempts = new Map<string, BlockAttempt>()

  get current(): RunContext {
    return this.#storage.getStore() ?? this.#rootContext
  }

  runIn<T>(context: RunContext, body: () => T): T {
    return this.#storage.run(context, body)
  }

  runAttempt<T>(
    context: RunContext,
    { name, uid }: Pick<BlockAttempt, 'name' | 'uid'>,
    body: () => T,
  ): T {
    const block = { name, uid, children: new Set<ChildTask>(), isFailed: false }
    this.#attempts.set(uid, block)
    return this.runIn({ ...context, block }, body)
  }

  /** Ends an attempt. Cancels the tasks that its body created, unless it succeeded. */
  endAttempt(uid: string, hasSucceeded: boolean): void {
    const attempt = this.#attempts.get(uid)
    if (attempt === undefined) return
    this.#attempts.delete(uid)
    if (hasSucceeded) return
    attempt.isFailed = true
    for (const child of attempt.children) child.cancel(toCancelReason(attempt))
  }
}

export const toCancelReason = ({ name, uid }: BlockAttempt): string =>
  `its block ${name} (${uid}) did not succeed`

/** The `backend` in events that belong to no backend. */
const backend = 'tutti'

/** A scope that stays open until all of its callbacks and tasks have ended. */
export interface OpenScope {
  readonly id: string
  readonly parentId: string | null
  startedMs: number
  uses: number
  failure: string | null
}

/** The open scopes of an engine (`WorkflowEngine.scope`). A scope ends when its last use ends. */
export class Scopes {
  readonly #core: Pick<SessionCore, 'clock' | 'emit'>
  readonly #open = new Map<string, OpenScope>()

  constructor(core: Pick<SessionCore, 'clock' | 'emit'>) {
    this.#core = core
  }

  enter(id: string, parent: OpenScope | null): OpenScope {
    const parentId = parent === null || parent.id === id ? null : parent.id
    return this.addUse({ id, parentId, startedMs: 0, uses: 0, failure: null })
  }

  /**
   * Adds a use to the open scope with the same id. If there is none, opens `given`, even if `given`
   * has ended before. The caller must leave the returned scope.
   */
  addUse(given: OpenScope): OpenScope {
    const { clock } = this.#core
    const scope = this.#open.get(given.id) ?? given
    scope.uses++
    if (scope.uses > 1) return scope
    const { id, parentId } = scope
    scope.startedMs = clock.monotonicMs()
    scope.failure = null
    this.#open.set(id, scope)
    this.#core.emit(WorkflowStarted, { backend, workflow_id: id, parent_workflow_id: parentId })
    return scope
  }

  /** Ends one use of the scope. Must be called once per use. */
  leave(scope: OpenScope, failure: string | null = null): void {
    const { clock } = this.#core
    scope.failure ??= failure
    scope.uses--
    if (scope.uses > 0) return
    this.#open.delete(scope.id)
    this.#core.emit(WorkflowEnded, {
      backend,
      workflow_id: scope.id,
      duration_seconds: (clock.monotonicMs() - scope.startedMs) / 1000,
      error_message: scope.failure === null ? null : maskSecrets(scope.failure),
    })
  }
}
