/**
 * Scopes: which tasks belong to which `flow.scope`, and the filter of readers that show one scope.
 * In runs with scopes 4 bytes per task, beside the ids.
 */

import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { type Column, createColumn, createTextIndex, indexOf } from '../columns.ts'
import { setValue, textAt, type TextIndex, valueAt } from '../columns.ts'
import { type Panel, textOf, type ViewEvent } from '../panel.ts'

export interface ScopesState {
  readonly ids: TextIndex
  /** The number of the task's scope in `ids`, plus 1. */
  readonly scopeOfTask: Column
}

export interface ScopesQuery {
  readonly task: number
}

const maxIdLength = 1000

/** Shows the scope of a task; empty for a task outside of all scopes. */
export const scopes: Panel<ScopesState, ScopesQuery, string> = {
  create: () => ({ ids: createTextIndex(), scopeOfTask: createColumn('u32') }),

  take({ ids, scopeOfTask }, event, { task, before, after }) {
    // All events of a task have the same scope, so the first one is enough.
    if (task === -1 || before !== 0 || after === 0) return
    const id = scopeIn(event).slice(0, maxIdLength)
    if (id !== '') setValue(scopeOfTask, task, indexOf(ids, id) + 1)
  },

  show({ ids, scopeOfTask }, { task }) {
    const row = valueAt(scopeOfTask, task) - 1
    return row === -1 ? '' : textAt(ids, row)
  },
}

const scopeIn = ({ attributes }: ViewEvent): string => textOf(attributes['workflow_id'])

/** The most ids that a misspelled one is compared with. */
const maxCompared = 1000

/** Finds the events of one scope, including the scopes inside of it. */
export class ScopeFilter {
  readonly #id: string
  /** The requested scope and those inside of it. */
  readonly #inside: Set<string>
  /** The tasks of these, because not all events of a task name its scope. */
  readonly #tasks = new Set<string>()
  readonly #others = new Set<string>()
  #isSeen = false

  constructor(id: string) {
    this.#id = id
    this.#inside = new Set([id])
  }

  /** Whether the event is of the scope itself or of one of its tasks. Call in order. */
  includes(event: ViewEvent): boolean {
    const { event_type, task_id } = event
    // Generated uids of another session are other tasks.
    if (event_type === 'SessionStarted') this.#tasks.clear()
    const scope = scopeIn(event) || textOf(event.workflow_id)
    if (this.#inside.has(textOf(event.parent_workflow_id))) this.#inside.add(scope)
    const isInside = scope !== '' && this.#inside.has(scope)
    this.#isSeen ||= isInside
    if (isInside && task_id !== null) this.#tasks.add(task_id)
    else if (scope !== '' && this.#others.size < maxCompared) this.#others.add(scope)
    return isInside || (task_id !== null && this.#tasks.has(task_id))
  }

  /** Whether it is no event of a task of another scope, or of none. Call in order. */
  keeps(event: ViewEvent): boolean {
    return this.includes(event) || event.task_id === null
  }

  /** Throws a `ValueError` if no event has the scope, unless later ones may. */
  expectSeen(isRunning: boolean): void {
    if (this.#isSeen || isRunning) return
    const near = didYouMean(this.#id, [...this.#others])
    throw new ValueError(`--scope: no task of the record has "${this.#id}"${near}`, {
      field: '--scope',
      got: this.#id,
    })
  }
}
