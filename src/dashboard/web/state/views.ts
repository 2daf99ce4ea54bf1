/** The views of the page, which components request while they are on screen, and the filter. */

import { computed } from '@preact/signals'
import { useLayoutEffect } from 'preact/hooks'
import type { Filter, HeadView, TaskDrawerView, ViewQuery, Views } from '../../protocol.ts'
import { type Panel, pageState, panels } from './fragment.ts'
import { ask, stateOf, stopAsking, type ViewState } from './view-client.ts'

type QueryOf<Kind extends keyof Views> = Extract<ViewQuery, { readonly kind: Kind }>

/** Requests a view while the component is on screen. A query of `null` requests nothing. */
export function useView<Kind extends keyof Views>(
  kind: Kind,
  query: QueryOf<Kind> | null,
): ViewState<Views[Kind]> {
  const text = JSON.stringify(query)
  useLayoutEffect(() => {
    if (query !== null) ask(kind, query)
  }, [kind, text])
  useLayoutEffect(() => () => stopAsking(kind), [kind])
  return stateOf(kind).value as ViewState<Views[Kind]>
}

/** Views that have no options except the filter of all panels. */
export type FilteredKind = 'progress' | 'failures' | 'workers' | 'inference' | 'graph'

export function useFilteredView<Kind extends FilteredKind>(kind: Kind): ViewState<Views[Kind]> {
  const limits = filter.value
  return useView<Kind>(kind, limits === null ? null : ({ kind, filter: limits } as QueryOf<Kind>))
}

/** The view of the run as a whole, which the header asks for. */
export const head = computed(() => stateOf('head').value.view as HeadView | null)

/** The beginning of the run, to which all times of the fragment are relative. */
export const startTime = computed(() => {
  const view = head.value
  if (view === null || (view.startTime === null && view.reading !== null)) return null
  return view.startTime ?? view.beginsAt?.time ?? view.endTime
})

/** The replayed time as wall-clock time; `null` without replay. */
export const replayTime = computed(() => {
  const [start, { t }] = [startTime.value, pageState.value]
  return start === null || t === null ? null : start + t
})

/** The filter of all panels; `null` until the beginning of the run is known. */
export const filter = computed((): Filter | null => {
  const start = startTime.value
  if (start === null) return null
  const { from, to, name } = pageState.value
  const at = replayTime.value
  return {
    ...(from === null ? {} : { from: start + from }),
    ...(to === null ? {} : { to: start + to }),
    ...(name === null ? {} : { name }),
    ...(at === null ? {} : { at }),
  }
})

/** Whether the page shows a server of models, which has no tasks. */
export const isServer = computed(() => (head.value?.serving ?? null) !== null)

const serverPanels: readonly Panel[] = ['inference', 'events', 'health']

export const shownPanels = computed(() => (isServer.value ? serverPanels : panels))

export const panel = computed((): Panel => {
  const { panel: chosen } = pageState.value
  if (chosen !== null && shownPanels.value.includes(chosen)) return chosen
  return isServer.value ? 'inference' : 'progress'
})

export const stateOfHead = computed(() => stateOf('head').value)

/** The right end of the time axis and of the slider, even in a replay. */
export const endTime = computed(() => head.value?.endTime ?? null)

export type StreamQuery = QueryOf<'stream'>

/** The tasks that the chosen task depends on, and those that depend on it. */
export const relatedTasks = computed((): ReadonlySet<string> => {
  const view = stateOf('task').value.view as TaskDrawerView | null
  const { task } = pageState.value
  if (view === null || task === null || view.uid !== task) return new Set()
  return new Set([...view.dependencies, ...view.dependents].map(({ uid }) => uid))
})

/** Whether the page lists the records of a folder: no run can be shown before one is chosen. */
export const isFolder = computed(() => {
  const { view, error } = stateOf('head').value
  return view === null && error !== '' && pageState.value.record === null
})
