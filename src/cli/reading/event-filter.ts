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

interface RequestedValues {
  readonly kind: FilterKind
  readonly values: readonly string[]
  /** The values that occurred in events before the first match. */
  readonly seen: Set<string>
}

export class EventFilter {
  readonly names = new TaskNames()
  readonly #scope: ScopeFilter | null
  readonly #requested: readonly RequestedValues[]
  /** The tasks with the requested name, because not all of their events contain it. */
  readonly #namedTasks = new Set<string>()
  #hasMatched = false

  constructor({ scope, type, task, name, node, backend }: FilterOptions) {
    this.#scope = scope === undefined ? null : new ScopeFilter(scope)
    const byKind = { type, task, name, node, backend }
    this.#requested = Object.entries(byKind).flatMap(([kind, given]) =>
      given === undefined
        ? []
        : [{ kind: kind as FilterKind, values: [given].flat(), seen: new Set<string>() }],
    )
  }

  get needsAllEvents(): boolean {
    return this.#scope !== null || this.#requested.some(({ kind }) => kind === 'name')
  }

  /** Whether the event is selected. Must be called for every event in the order of the record. */
  matches(event: EventLine): boolean {
    const isInScope = this.#scope?.includes(event) !== false
    const isRequested = this.#requested.map((one) => this.#matchesKind(event, one))
    const isMatch = isInScope && !isRequested.includes(false)
    this.#hasMatched ||= isMatch
    return isMatch
  }

  /**
   * Throws a `ValueError` if no event has a requested value, which is then probably misspelled. If
   * the run is followed, throws only for event types that the library does not have.
   */
  async expectKnownValues(isFollowed: boolean): Promise<void> {
    this.#scope?.expectSeen(isFollowed)
    for (const { kind, values, seen } of this.#requested) {
      for (const value of values) {
        if (seen.has(value)) continue
        const types = kind === 'type' ? await loadEventTypes() : []
        if (types.includes(value)) continue
        const isOwnType = kind === 'type' && (!value.includes('.') || value.startsWith('tutti.'))
        if (!isOwnType && (isFollowed || this.#hasMatched)) continue
        const near = didYouMean(value, [...seen, ...types])
        throw new ValueError(`no event has the ${kind} "${value}"${near}`, {
          code: 'FilterError',
          field: `--${kind}`,
          got: value,
        })
      }
    }
  }

  #matchesKind(event: EventLine, { kind, values, seen }: RequestedValues): boolean {
    const { task_id: uid } = event
    const found = listValues(event, kind)
    for (const value of this.#hasMatched ? [] : found) {
      if (values.includes(value) || seen.size < maxCompared) seen.add(value)
    }
    const isMatch = found.some((value) => values.includes(value))
    if (kind !== 'name' || uid === null) return isMatch
    if (isMatch) this.#namedTasks.add(uid)
    return this.#namedTasks.has(uid)
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
