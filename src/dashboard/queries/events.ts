/** The latest events, selected by the query bar, and the numbers in events of the application. */

import { eachText, textAt, valueAt } from '../../views/columns.ts'
import { numberOf, type ViewEvent } from '../../views/panel.ts'
import { numberText } from '../../views/readable.ts'
import { findTask } from '../../views/task-index.ts'
import { commonFields, eventDetails } from '../../views/texts/event-details.ts'
import type { EventsView, Filter } from '../protocol.ts'
import type { RunMoment } from './run-moment.ts'
import { findNames } from './selection.ts'
import { describeNotShown, shownText } from './shown-texts.ts'
import { type ParsedQuery, parseQuery, type TextCondition } from './tasks/query-language.ts'

export interface EventsQuery {
  readonly filter: Filter
  readonly q: string
  readonly limit: number
}

interface NamedEvent {
  readonly event: ViewEvent
  readonly name: string
}

const maxEvents = 500

/**
 * The latest events come first. `known` has the events that were kept, and `total` counts all
 * events.
 */
export function showEvents(
  moment: RunMoment,
  { filter, q, limit }: EventsQuery,
  known: readonly ViewEvent[],
  total: number,
): EventsView {
  const query = parseQuery(q)
  const isSelected = createEventFilter(moment, filter, query)
  const found = known
    .map((event): NamedEvent => ({ event, name: nameOf(moment, event) }))
    .filter(isSelected)
  const max = Math.min(limit, maxEvents)
  const older = describeNotShown([found.length - max, 'older event'])
  const share = `${numberText(known.length)} of ${numberText(total)} events`
  const kept = `Only the latest ${share} are searched.`
  return {
    events: found.slice(-max).toReversed().map(toRow),
    plots: collectPlots(found),
    notShown: `${older} ${total > known.length ? kept : ''}`.trim(),
    problem: query.problem,
  }
}

/** Not all events of a task have its name, so the name of the task is looked up. */
function nameOf({ pass: { counts }, names }: RunMoment, { task_id: uid }: ViewEvent): string {
  const task = uid === null ? -1 : findTask(counts.index, uid)
  return task === -1 ? '' : textAt(names.names, valueAt(names.nameOfTask, task))
}

function toRow({ event, name }: NamedEvent): EventsView['events'][number] {
  const { event_time: time, event_type: type, task_id: task, node_id: node } = event
  const workerId = workerOf(event)
  return {
    time,
    type: shownText(type),
    task: task === null ? null : shownText(task),
    name: shownText(name),
    node: node === null ? null : shownText(node),
    text: shownText(
      [workerId, ...eventDetails(event)].filter((part) => part !== '').join('  '),
      300,
    ),
  }
}

function workerOf({ attributes, worker_id: worker }: ViewEvent): string {
  const id = attributes['worker_id'] ?? worker
  return typeof id === 'string' ? id : ''
}

function createEventFilter(
  moment: RunMoment,
  { from = -Infinity, to = Infinity, at = Infinity, name }: Filter,
  { texts, numbers }: ParsedQuery,
): (event: NamedEvent) => boolean {
  const isNamed = findNames(moment, name)
  const { names } = moment.names
  const requestedKeys = new Set<string>()
  eachText(names, (text, number) => {
    if (isNamed?.[number] === 1) requestedKeys.add(text)
  })
  return (one) => {
    const { event_time: time, duration_seconds: duration } = one.event
    if (time < from || time > to || time > at) return false
    if (isNamed !== null && !requestedKeys.has(one.name)) return false
    const seconds = numberOf(duration) ?? Number.NaN
    return (
      numbers.every(({ matches }) => matches(seconds)) &&
      texts.every((condition) => isMatch(one, condition) !== condition.isNegated)
    )
  }
}

function isMatch({ event, name }: NamedEvent, { key, matches }: TextCondition): boolean {
  const { event_type: type, task_id: task, node_id: node, attributes } = event
  const texts = {
    type,
    task: task ?? '',
    name,
    node: node ?? '',
    worker: workerOf(event),
    scope: String(attributes['workflow_id'] ?? ''),
    state: states.get(type) ?? '',
  }
  if (key !== null) return texts[key] !== '' && matches(texts[key])
  return [...Object.values(texts), ...eventDetails(event)].some(matches)
}

/** The state that an event puts its task into. */
const states: ReadonlyMap<string, string> = new Map([
  ['TaskCreated', 'CREATED'],
  ['TaskSubmitted', 'SUBMITTED'],
  ['TaskQueued', 'QUEUED'],
  ['TaskStarted', 'RUNNING'],
  ['TaskCompleted', 'DONE'],
  ['TaskFailed', 'FAILED'],
  ['TaskCanceled', 'CANCELED'],
])

const maxPlots = 12
const maxPoints = 500

/** The numeric fields of the application's own events over time. */
function collectPlots(found: readonly NamedEvent[]): EventsView['plots'] {
  const plots = new Map<string, { times: number[]; values: number[] }>()
  for (const { event } of found) {
    const { event_type: type, event_time: time } = event
    if (!type.includes('.') || type.startsWith('tutti.')) continue
    for (const [field, value] of Object.entries(event)) {
      if (typeof value !== 'number' || !Number.isFinite(value) || commonFields.has(field)) continue
      const title = shownText(`${type} ${field}`)
      const known = plots.get(title)
      if (known === undefined && plots.size >= maxPlots) continue
      const plot = known ?? { times: [], values: [] }
      if (known === undefined) plots.set(title, plot)
      plot.times.push(time)
      plot.values.push(value)
    }
  }
  return Array.from(plots, ([title, { times, values }]) => ({
    title,
    times: times.slice(-maxPoints),
    values: values.slice(-maxPoints),
  }))
}
