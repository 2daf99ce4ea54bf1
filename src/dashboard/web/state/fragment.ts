/** The state of the page in the fragment of its address, so that a link shows the same view. */

import { computed, signal } from '@preact/signals'
import type { TasksPart } from '../../protocol.ts'

export const panels = [
  'stream',
  'progress',
  'tasks',
  'resources',
  'failures',
  'workers',
  'inference',
  'graph',
  'events',
  'health',
] as const

export type Panel = (typeof panels)[number]

/** The keys of the fragment, `null` if absent. Times are seconds since the start of the run. */
export interface PageState {
  /** The chosen panel; `null` for the first panel that the page shows. */
  readonly panel: Panel | null
  readonly name: string | null
  readonly task: string | null
  readonly from: number | null
  readonly to: number | null
  readonly q: string
  readonly t: number | null
  /** The record of a folder that is shown; `null` shows the list of records, or the only run. */
  readonly record: string | null
}

const isPanel = (text: string | null): text is Panel => panels.some((panel) => panel === text)

function toSeconds(text: string | null): number | null {
  const seconds = Number(text ?? '')
  return text === null || text === '' || !Number.isFinite(seconds) ? null : seconds
}

function readFragment(fragment: string): PageState {
  const keys = new URLSearchParams(fragment.replace(/^#/, ''))
  const panel = keys.get('panel')
  const [from, to] = [toSeconds(keys.get('from')), toSeconds(keys.get('to'))]
  return {
    panel: isPanel(panel) ? panel : null,
    name: keys.get('name'),
    task: keys.get('task'),
    from: from !== null && to !== null && from > to ? to : from,
    to: from !== null && to !== null && from > to ? from : to,
    q: keys.get('q') ?? '',
    t: toSeconds(keys.get('t')),
    record: keys.get('record'),
  }
}

function writeFragment({ panel, name, task, from, to, q, t, record }: PageState): string {
  const keys = new URLSearchParams()
  const add = (key: string, value: string | number | null): void => {
    if (value === null || value === '') return
    keys.set(key, typeof value === 'number' ? String(Number(value.toFixed(3))) : value)
  }
  add('record', record)
  add('panel', panel)
  add('name', name)
  add('task', task)
  add('from', from)
  add('to', to)
  add('q', q)
  add('t', t)
  const text = keys.toString()
  return text === '' ? '' : `#${text}`
}

// Removes the used token from the address, which can then be stored and reloaded.
if (location.search !== '') history.replaceState(null, '', location.pathname + location.hash)

export const pageState = signal<PageState>(readFragment(location.hash))

export const chosenTask = computed(() => pageState.value.task)

const stepOf = ({ record, panel: one, task }: PageState): string => `${record} ${one} ${task}`

/** Changes the state. A new record, panel or task is a step that the Back button undoes. */
export function updateState(changes: Partial<PageState>): void {
  const before = pageState.peek()
  const after = { ...before, ...changes }
  const isStep = stepOf(after) !== stepOf(before)
  pageState.value = after
  const address = location.pathname + writeFragment(after)
  if (isStep) history.pushState(null, '', address)
  else history.replaceState(null, '', address)
}

addEventListener('popstate', () => {
  pageState.value = readFragment(location.hash)
})

export interface TaskOrder {
  readonly sort: TasksPart['sort']
  readonly isDescending: boolean
}

export const taskOrder = signal<TaskOrder>({ sort: 'order', isDescending: false })

/** Shows the tasks that a query finds. The longest times come first. */
export function openTasks(q: string, sort: TasksPart['sort']): void {
  taskOrder.value = { sort, isDescending: sort === 'ran' || sort === 'waited' }
  updateState({ panel: 'tasks', q })
}

export const openTask = (uid: string): void => updateState({ task: uid })

/** Goes back to the list of the records of a folder. */
export const showRecords = (): void => updateState(readFragment(''))
