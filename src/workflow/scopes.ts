/** The open scopes of an engine: they count what was made inside, and tell when all of it ended. */

import { WorkflowEnded, WorkflowStarted } from '../events/library-events.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Registrar } from '../core/deferred-submission.ts'

/** The backend of events that concern a workflow as a whole, as of those of the session. */
const backend = 'tutti'

export interface ScopesParts {
  readonly clock: Clock
  readonly registrar: Registrar
}

/** A scope is open until every callback that entered it and every task made inside has ended. */
export interface OpenScope {
  readonly id: string
  readonly parentId: string | null
  startedMs: number
  uses: number
  /** The first failure of a callback. */
  failure: string | null
}

export class Scopes {
  readonly #parts: ScopesParts
  readonly #open = new Map<string, OpenScope>()

  constructor(parts: ScopesParts) {
    this.#parts = parts
  }

  /** Entering an open id again joins it. */
  enter(id: string, parent: OpenScope | null): OpenScope {
    const parentId = parent === null || parent.id === id ? null : parent.id
    return this.use({ id, parentId, startedMs: 0, uses: 0, failure: null })
  }

  /**
   * Something more uses the scope, or the one that is open under its id by now; it must leave the
   * one that it gets. Code that outlived its scope opens it once more.
   */
  use(given: OpenScope): OpenScope {
    const { clock, registrar } = this.#parts
    const scope = this.#open.get(given.id) ?? given
    scope.uses++
    if (scope.uses > 1) return scope
    const { id, parentId } = scope
    scope.startedMs = clock.monotonicMs()
    scope.failure = null
    this.#open.set(id, scope)
    registrar.tell(WorkflowStarted, { backend, workflow_id: id, parent_workflow_id: parentId })
    return scope
  }

  /** Something that used the scope has ended. */
  leave(scope: OpenScope, failure: string | null = null): void {
    const { clock, registrar } = this.#parts
    scope.failure ??= failure
    scope.uses--
    if (scope.uses > 0) return
    this.#open.delete(scope.id)
    registrar.tell(WorkflowEnded, {
      backend,
      workflow_id: scope.id,
      duration_seconds: (clock.monotonicMs() - scope.startedMs) / 1000,
      error_message: scope.failure,
    })
  }
}
