/** The tabs below the stream, and the panel that is chosen. */

import { useEffect } from 'preact/hooks'
import { countText, numberText } from '../../../views/readable.ts'
import type { HeadView } from '../../protocol.ts'
import { EventsPanel } from '../panels/events.tsx'
import { FailuresPanel } from '../panels/failures.tsx'
import { GraphPanel } from '../panels/graph.tsx'
import { HealthPanel } from '../panels/health.tsx'
import { InferencePanel } from '../panels/inference.tsx'
import { ProgressPanel } from '../panels/progress.tsx'
import { ResourcesPanel } from '../panels/resources.tsx'
import { TasksPanel } from '../panels/tasks.tsx'
import { WorkersPanel } from '../panels/workers.tsx'
import { type Panel, updateState } from '../state/fragment.ts'
import { head, panel, shownPanels } from '../state/views.ts'

const bodies = {
  progress: ProgressPanel,
  tasks: TasksPanel,
  resources: ResourcesPanel,
  failures: FailuresPanel,
  workers: WorkersPanel,
  inference: InferencePanel,
  graph: GraphPanel,
  events: EventsPanel,
  health: HealthPanel,
} as const

const badgeOf = (one: Panel, view: HeadView | null): number | null =>
  one === 'failures' && view !== null && view.counts.failed > 0 ? view.counts.failed : null

export function Panels() {
  const [chosen, panels] = [panel.value, shownPanels.value]
  const Body = chosen === 'stream' ? null : bodies[chosen]
  useEffect(() => {
    const show = (): void => showTab(chosen)
    show()
    addEventListener('resize', show)
    return () => removeEventListener('resize', show)
  }, [chosen])
  const move = (event: KeyboardEvent): void => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key]
    if (step === undefined) return
    const next = panels[(panels.indexOf(chosen) + step + panels.length) % panels.length]
    if (next === undefined) return
    event.preventDefault()
    updateState({ panel: next })
    document.getElementById(`tab-${next}`)?.focus()
  }
  return (
    <>
      <div class="tabs" role="tablist" aria-label="Panels" onKeyDown={move}>
        {panels.map((one) => (
          <Tab key={one} panel={one} isChosen={one === chosen} badge={badgeOf(one, head.value)} />
        ))}
      </div>
      <div
        class="panel"
        role="tabpanel"
        id="panel"
        data-panel={chosen}
        aria-labelledby={`tab-${chosen}`}
        tabIndex={-1}
      >
        <h2 class="hidden">{chosen}</h2>
        {Body === null ? null : <Body />}
      </div>
    </>
  )
}

/** Scrolls the tabs of a narrow page, so that the chosen one is visible. */
function showTab(one: Panel): void {
  const tab = document.getElementById(`tab-${one}`)
  const tabs = tab?.parentElement
  if (!tab || !tabs) return
  const isHidden =
    tab.offsetLeft < tabs.scrollLeft ||
    tab.offsetLeft + tab.offsetWidth > tabs.scrollLeft + tabs.clientWidth
  if (isHidden) tabs.scrollLeft = tab.offsetLeft - tabs.clientWidth / 3
}

interface TabProps {
  readonly panel: Panel
  readonly isChosen: boolean
  readonly badge: number | null
}

function Tab({ panel: one, isChosen, badge }: TabProps) {
  return (
    <button
      type="button"
      role="tab"
      id={`tab-${one}`}
      aria-controls="panel"
      aria-selected={isChosen}
      tabIndex={isChosen ? 0 : -1}
      onClick={() => updateState({ panel: one })}
    >
      {one}
      {badge === null ? null : (
        <span class="badge" aria-label={countText(badge, 'task')}>
          {numberText(badge)}
        </span>
      )}
    </button>
  )
}
