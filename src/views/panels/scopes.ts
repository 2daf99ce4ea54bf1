/**
 * Scopes: the `flow.scope` that each task belongs to, and a filter for readers that show only one
 * scope. In runs with scopes, uses 4 bytes per task in addition to the ids.
 */

import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { type Column, createColumn, createTextIndex, indexOf } from '../columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from '../columns.ts'
import { type Panel, textOf, type ViewEvent } from '../panel.ts'

export interface ScopesState {
  readonly ids: TextIndex
  /** For each task, the index of its scope in `ids`, plus 1; 0 if the task is in no scope. */
  readonly scopeOfTask: Column
}

export interface ScopesQuery {
  readonly task: number
}

const maxIdLength = 1000

/** Shows the scope of a task. It is empty if the task is in no scope. */
export const scopes: Panel<ScopesState, ScopesQuery, string> = {
  create: () => ({ ids: createTextIndex(), scopeOfTask: createColumn('u32') }),

  take({ ids, scopeOfTask }, event, { task, before, after }) {
    // The first event of a task is sufficient, because all its events have the same scope.
    if (task === -1 || before !== 0 || after === 0) return
    const id = readScope(event).slice(0, maxIdLength)
    if (id !== '') setValue(scopeOfTask, task, indexOf(ids, id) + 1)
  },

  show({ ids, scopeOfTask }, { task }) {
    const row = valueAt(scopeOfTask, task) - 1
    return row === -1 ? '' : textAt(ids, row)
  },
}

const readScope = ({ attributes }: ViewEvent): string => textOf(attributes['workflow_id'])

/** The maximum number of ids to compare a misspelled id with. */
const maxCompared = 1000

/** Selects the events of one scope, including nested scopes. */
export class ScopeFilter {
  readonly #id: string
  readonly #scopeIds: Set<string>
  /** The tasks of the scopes in `#scopeIds`, because not all events of a task name its scope. */
  readonly #tasks = new Set<string>()
  readonly #otherIds = new Set<string>()
  #isSeen = false

  constructor(id: string) {
    this.#id = id
    this.#scopeIds = new Set([id])
  }

  /** Whether the event belongs to the scope or one of its tasks. Call this for events in order. */
  includes(event: ViewEvent): boolean {
    const { event_type, task_id } = event
    // Forgets the tasks, because in another session, the same generated uids belong to other tasks.
    if (event_type === 'SessionStarted') this.#tasks.clear()
    const scope = readScope(event) || textOf(event.workflow_id)
    if (this.#scopeIds.has(textOf(event.parent_workflow_id))) this.#scopeIds.add(scope)
    const isInside = scope !== '' && this.#scopeIds.has(scope)
    this.#isSeen ||= isInside
    if (isInside && task_id !== null) this.#tasks.add(task_id)
    else if (scope !== '' && this.#otherIds.size < maxCompared) this.#otherIds.add(scope)
    return isInside || (task_id !== null && this.#tasks.has(task_id))
  }

  /** Whether the event is in the scope or belongs to no task. Call this for events in order. */
  keeps(event: ViewEvent): boolean {
    return this.includes(event) || event.task_id === null
  }

  /** Throws a `ValueError` if no event has the scope, and no further events can follow. */
  expectSeen(isRunning: boolean): void {
    if (this.#isSeen || isRunning) return
    const near = didYouMean(this.#id, [...this.#otherIds])
    throw new ValueError(`--scope: no task of the record has "${this.#id}"${near}`, {
      field: '--scope',
      got: this.#id,
    })
  }
}
