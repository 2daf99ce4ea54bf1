/** Selects the events of a record that `tutti tail` shows, and detects misspelled values. */

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

type Kind = Exclude<keyof FilterOptions, 'scope'>

/** The maximum number of values per kind that a misspelled value is compared with. */
const maxCompared = 1000

export class EventFilter {
  readonly #options: FilterOptions
  /** Uids of tasks with the requested name, because not all of their events contain the name. */
  readonly #named = new Set<string>()
  /** The names of all tasks seen so far. */
  readonly names = new TaskNames()
  readonly #asked: readonly (readonly [Kind, string])[]
  /** The requested values that occurred in an event, as `kind value`. */
  readonly #seen = new Set<string>()
  /** Other values that occurred in events, collected until an event matches. */
  readonly #others: Readonly<Record<Kind, Set<string>>> = {
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
    const { type = [], task, name, node, backend } = options
    const single = Object.entries({ task, name, node, backend }) as [Kind, string | undefined][]
    this.#asked = [
      ...type.map((one) => ['type', one] as const),
      ...single.flatMap(([kind, value]) => (value === undefined ? [] : [[kind, value] as const])),
    ]
  }

  /** Whether the filter must see all events of a task, starting with the first. */
  get needsAll(): boolean {
    return this.#options.name !== undefined || this.#scope !== null
  }

  /** Call this for every event in the order of the record. */
  matches(event: EventLine): boolean {
    if (!this.#hasMatched && this.#asked.length > 0) this.#note(event)
    const isMatch = this.#isMatch(event)
    this.#hasMatched ||= isMatch
    return isMatch
  }

  /**
   * Throws a `ValueError` when no event has a requested value, so that it is probably misspelled.
   * While the run is followed, refuses only event types that the library does not have.
   */
  async expectKnown(isFollowed: boolean): Promise<void> {
    this.#scope?.expectSeen(isFollowed)
    for (const [kind, value] of this.#asked) {
      if (this.#seen.has(`${kind} ${value}`)) continue
      const types = kind === 'type' ? await typesOfLibrary() : []
      if (types.includes(value)) continue
      const isOwnType = kind === 'type' && (!value.includes('.') || value.startsWith('tutti.'))
      if (!isOwnType && (isFollowed || this.#hasMatched)) continue
      const known = [...this.#others[kind], ...types]
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
    // If the name differs from the executable, only the first event of a task has it.
    if (task_id !== null && this.#named.has(task_id)) return true
    const isNamed = namesIn(attributes).includes(name)
    if (isNamed && task_id !== null) this.#named.add(task_id)
    return isNamed
  }

  #note(event: EventLine): void {
    for (const [kind, asked] of this.#asked) {
      for (const value of valuesOf(event, kind)) {
        if (value === asked) this.#seen.add(`${kind} ${value}`)
        else if (this.#others[kind].size < maxCompared) this.#others[kind].add(value)
      }
    }
  }
}

function valuesOf({ event_type, task_id, node_id, backend, attributes }: EventLine, kind: Kind) {
  if (kind === 'type') return [event_type]
  if (kind === 'task') return task_id === null ? [] : [task_id]
  if (kind === 'node') return node_id === null ? [] : [node_id]
  if (kind === 'backend') return [backend]
  return namesIn(attributes)
}

/** All names by which a task may be requested; empty if the event has no name. */
function namesIn(attributes: EventLine['attributes']): string[] {
  const given = [attributes['task_name'], attributes['tutti.name'], attributes['executable']]
  return given.flatMap((one) => (typeof one === 'string' ? [one, shortName(one)] : []))
}

/** The event types of this version; a record of another version may have more. */
async function typesOfLibrary(): Promise<readonly string[]> {
  const [vocabulary, library, { ResourceUpdate }] = await Promise.all([
    import('../../events/vocabulary.ts'),
    import('../../events/library-events.ts'),
    import('../../events/resource-update.ts'),
  ])
  return [...Object.values(vocabulary), ...Object.values(library), ResourceUpdate].flatMap((one) =>
    'eventType' in one ? [one.eventType] : [],
  )
}
