/** Selects the events that `tutti tail` shows, and detects misspelled values. */

import type { EventLine } from '../../checkpoint/format.ts'
import { ValueError } from '../../foundation/errors.ts'
import { didYouMean } from '../../foundation/options.ts'
import { shortName } from '../../views/readable.ts'
import { TaskNames } from '../../views/panel.ts'
import { ScopeFilter } from '../../views/panels/scopes.ts'

export interface FilterOptions {
  readonly type?: readonly string[]
  readonly task?: string
  readonly name?: string
  readonly node?: string
  readonly backend?: string
  readonly scope?: string
}

type FilterKind = Exclude<keyof FilterOptions, 'scope'>

/** A misspelled value is compared with at most this many values. */
const maxCompared = 1000

export class EventFilter {
  readonly #options: FilterOptions
  /** Needed because not all events of a task contain its name. */
  readonly #named = new Set<string>()
  readonly names = new TaskNames()
  readonly #requested: readonly (readonly [FilterKind, string])[]
  /** The values that occurred in events, until an event matched. */
  readonly #seen: Readonly<Record<FilterKind, Set<string>>> = {
    type: new Set(),
    task: new Set(),
    name: new Set(),
    node: new Set(),
    backend: new Set(),
  }
  #hasMatched = false
  readonly #scope: ScopeFilter | null

  constructor(options: FilterOptions) {
    this.#options = options
    this.#scope = options.scope === undefined ? null : new ScopeFilter(options.scope)
    const { type = [], task = [], name = [], node = [], backend = [] } = options
    const byKind = Object.entries({ type, task, name, node, backend }) as [
      FilterKind,
      string | string[],
    ][]
    this.#requested = byKind.flatMap(([kind, values]) =>
      [values].flat().map((value) => [kind, value] as const),
    )
  }

  get needsAllEvents(): boolean {
    return this.#options.name !== undefined || this.#scope !== null
  }

  /** Whether the event is selected. Must be called for every event in the order of the record. */
  matches(event: EventLine): boolean {
    if (!this.#hasMatched && this.#requested.length > 0) this.#collectValues(event)
    const isMatch = this.#isMatch(event)
    this.#hasMatched ||= isMatch
    return isMatch
  }

  /**
   * Throws a `ValueError` if no event has a requested value, which is then probably misspelled. If
   * the run is followed, throws only for event types that the library does not have.
   */
  async expectKnownValues(isFollowed: boolean): Promise<void> {
    this.#scope?.expectSeen(isFollowed)
    for (const [kind, value] of this.#requested) {
      if (this.#seen[kind].has(value)) continue
      const types = kind === 'type' ? await loadEventTypes() : []
      if (types.includes(value)) continue
      const isOwnType = kind === 'type' && (!value.includes('.') || value.startsWith('tutti.'))
      if (!isOwnType && (isFollowed || this.#hasMatched)) continue
      const known = [...this.#seen[kind], ...types]
      throw new ValueError(`no event has the ${kind} "${value}"${didYouMean(value, known)}`, {
        code: 'FilterError',
        field: `--${kind}`,
        got: value,
      })
    }
  }

  #isMatch(event: EventLine): boolean {
    const { type, task, name, node, backend } = this.#options
    if (this.#scope?.includes(event) === false) return false
    if (name !== undefined && !this.#isNamed(event, name)) return false
    if (type !== undefined && !type.includes(event.event_type)) return false
    if (task !== undefined && event.task_id !== task) return false
    if (node !== undefined && event.node_id !== node) return false
    return backend === undefined || event.backend === backend
  }

  #isNamed({ task_id, attributes }: EventLine, name: string): boolean {
    // Only the first event of a task has a name that differs from the executable.
    if (task_id !== null && this.#named.has(task_id)) return true
    const isNamed = listNames(attributes).includes(name)
    if (isNamed && task_id !== null) this.#named.add(task_id)
    return isNamed
  }

  #collectValues(event: EventLine): void {
    for (const [kind, asked] of this.#requested) {
      for (const value of listValues(event, kind)) {
        if (value === asked || this.#seen[kind].size < maxCompared) this.#seen[kind].add(value)
      }
    }
  }
}

function listValues(
  { event_type, task_id, node_id, backend, attributes }: EventLine,
  kind: FilterKind,
) {
  if (kind === 'type') return [event_type]
  if (kind === 'task') return task_id === null ? [] : [task_id]
  if (kind === 'node') return node_id === null ? [] : [node_id]
  if (kind === 'backend') return [backend]
  return listNames(attributes)
}

function listNames(attributes: EventLine['attributes']): string[] {
  const given = [attributes['task_name'], attributes['tutti.name'], attributes['executable']]
  return given.flatMap((one) => (typeof one === 'string' ? [one, shortName(one)] : []))
}

async function loadEventTypes(): Promise<readonly string[]> {
  const [vocabulary, library, { ResourceUpdate }] = await Promise.all([
    import('../../events/vocabulary.ts'),
    import('../../events/library-events.ts'),
    import('../../events/resource-update.ts'),
  ])
  return [...Object.values(vocabulary), ...Object.values(library), ResourceUpdate].flatMap((one) =>
    'eventType' in one ? [one.eventType] : [],
  )
}
