/** The keys that work everywhere on the page. Keys of the stream are listed here, too. */

import { signal } from '@preact/signals'
import { pageState, updateState } from './fragment.ts'
import { pan, zoom, zoomBy } from './time-axis.ts'
import { isPaused } from './view-client.ts'
import { isServer, panel as shownPanel, shownPanels } from './views.ts'

export const isShowingKeys = signal(false)

interface Key {
  readonly keys: string
  readonly what: string
}

export const keyList: readonly Key[] = [
  { keys: '1 … 9, 0', what: 'show a panel, in the order of the tabs' },
  { keys: '/', what: 'write a query for tasks or events' },
  { keys: '+  -  =', what: 'zoom in, zoom out, show the whole run' },
  { keys: '←  →', what: 'move the visible time' },
  { keys: 'Shift ←  →', what: 'select a time, and move its end' },
  { keys: 'p', what: 'pause, and go on' },
  { keys: 't', what: 'replay, on and off' },
  { keys: 'Esc', what: 'close the task, then clear the selection' },
  { keys: '?', what: 'show this list' },
]

const actions: Readonly<Record<string, () => void>> = {
  '?': () => (isShowingKeys.value = true),
  '/': focusQuery,
  '+': () => zoomBy(0.5),
  '-': () => zoomBy(2),
  '=': () => (zoom.value = null),
  p: () => (isPaused.value = !isPaused.value),
  t: () => updateState({ t: pageState.peek().t === null ? 0 : null }),
  ArrowLeft: () => pan(-0.25),
  ArrowRight: () => pan(0.25),
  Escape: leave,
}

function leave(): void {
  const { task, from, to } = pageState.peek()
  if (isShowingKeys.peek()) isShowingKeys.value = false
  else if (task !== null) updateState({ task: null })
  else if (from !== null || to !== null) updateState({ from: null, to: null })
}

function focusQuery(): void {
  const panel = shownPanel.peek()
  const wanted = isServer.peek() ? 'events' : 'tasks'
  if (panel !== 'tasks' && panel !== 'events') updateState({ panel: wanted })
  requestAnimationFrame(() =>
    document.querySelector<HTMLInputElement>('input[type=search]')?.focus(),
  )
}

/** Elements that use the keys themselves. */
const ownKeys = 'input, select, textarea, [role=tab], .scroll, .rows'

export function listenToKeys(): void {
  addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return
    const target = event.target instanceof Element ? event.target : null
    const isOwn = target?.closest(ownKeys) !== null
    if (event.key !== 'Escape' && target?.closest('input, select, textarea') !== null) return
    if (isOwn && event.key.startsWith('Arrow')) return
    const number = '1234567890'.indexOf(event.key)
    const panel = event.key.length === 1 && number !== -1 ? shownPanels.peek()[number] : undefined
    const action = panel === undefined ? actions[event.key] : () => updateState({ panel })
    if (
      action === undefined ||
      event.defaultPrevented ||
      (event.shiftKey && event.key.startsWith('Arrow'))
    )
      return
    event.preventDefault()
    action()
  })
}
