/** The open scopes of an engine (`WorkflowEngine.scope`). A scope ends when its last use ends. */

import type { SessionCore } from '../core/session-core.ts'
import { WorkflowEnded, WorkflowStarted } from '../events/library-events.ts'
import { maskSecrets } from '../foundation/secrets.ts'

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
