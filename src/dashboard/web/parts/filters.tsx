/** The filters that are set, each with a button that removes it. */

import { countText, secondsText } from '../../../views/readable.ts'
import type { InsideName } from '../../protocol.ts'
import { pageState, updateState } from '../state/fragment.ts'
import { colourClass, nameText } from '../state/names.ts'
import { axis, showPart } from '../state/time-axis.ts'
import { filter, startTime, useView } from '../state/views.ts'
import { countColumn, secondsColumn, Table } from './table.tsx'

export function Filters() {
  const { name, from, to } = pageState.value
  const hasRange = from !== null || to !== null
  if (name === null && !hasRange) return null
  return (
    <section class="filters" aria-label="Filters">
      {hasRange ? (
        <span class="filter">
          {secondsText(from ?? 0)} to {to === null ? 'the end' : secondsText(to)}
          {from !== null && to !== null ? ` (${secondsText(to - from)})` : ''}
          <button type="button" onClick={zoomToRange}>
            Zoom in
          </button>
          <button
            type="button"
            aria-label="Clear the selected time"
            onClick={() => updateState({ from: null, to: null })}
          >
            ✕
          </button>
        </span>
      ) : null}
      {name === null ? null : (
        <span class="filter">
          <i class={`swatch ${colourClass(name)}`} /> {nameText(name)}
          <button
            type="button"
            aria-label="Show all names"
            onClick={() => updateState({ name: null })}
          >
            ✕
          </button>
        </span>
      )}
      {hasRange ? <Inside /> : null}
    </section>
  )
}

function zoomToRange(): void {
  const [whole, start, { from, to }] = [axis.peek(), startTime.peek(), pageState.peek()]
  if (whole === null || start === null) return
  const first = from === null ? 0 : whole.toPosition(start + from)
  const last = to === null ? whole.length : whole.toPosition(start + to)
  const margin = (last - first) * 0.05
  showPart(first - margin, last - first + 2 * margin)
}

/** The attempts in the selected time, by name. */
function Inside() {
  const limits = filter.value
  const { view } = useView('inside', limits === null ? null : { kind: 'inside', filter: limits })
  if (view === null) return null
  const { names: inside } = view
  if (inside.length === 0) return <p class="empty">No task ran in the selected time.</p>
  const total = inside.reduce((sum, { count }) => sum + count, 0)
  return (
    <Table
      caption={`In the selected time: ${countText(total, 'attempt')}`}
      columns={columns}
      rows={inside}
      keyOf={({ name }: InsideName) => name}
      isCaptionShown
    />
  )
}

const columns = [
  {
    title: 'name',
    cell: ({ name }: InsideName) => (
      <>
        <i class={`swatch ${colourClass(name)}`} />
        {nameText(name)}
      </>
    ),
  },
  countColumn<InsideName>('attempts', ({ count }) => count),
  countColumn<InsideName>('failures', ({ failures }) => failures),
  secondsColumn<InsideName>('sum', ({ seconds }) => seconds),
  secondsColumn<InsideName>('p50', ({ p50 }) => p50),
  secondsColumn<InsideName>('p95', ({ p95 }) => p95),
  secondsColumn<InsideName>('max', ({ max }) => max),
]
