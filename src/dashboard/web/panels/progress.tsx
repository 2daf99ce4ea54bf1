/** The progress of tasks by name. */

import type { ProgressView } from '../../protocol.ts'
import { numberText } from '../../../views/readable.ts'
import { FilteredPanel } from '../parts/panel.tsx'
import { countColumn, secondsColumn, Table } from '../parts/table.tsx'
import { pageState, updateState } from '../state/fragment.ts'
import { colourClass, nameText, safeText } from '../state/names.ts'
import { head } from '../state/views.ts'

type Name = ProgressView['names'][number]

export function ProgressPanel() {
  const emptyText = ({ names }: ProgressView): string | null =>
    names.length === 0 ? 'No task has been submitted.' : null
  return (
    <FilteredPanel kind="progress" emptyText={emptyText}>
      {({ names }) => (
        <Table caption="Tasks by name" columns={columns} rows={names} keyOf={({ name }) => name} />
      )}
    </FilteredPanel>
  )
}

function NameButton({ name }: { readonly name: string }) {
  const isChosen = pageState.value.name === name
  return (
    <button
      type="button"
      class="link"
      aria-pressed={isChosen}
      onClick={() => updateState({ name: isChosen ? null : name })}
    >
      <i class={`swatch ${colourClass(name)}`} />
      {nameText(name)}
    </button>
  )
}

/** The tasks that no other column counts. */
function othersText({ total, done, failed, canceled, running, waiting }: Name): string {
  const isRunning = head.value?.state === 'running'
  const open = isRunning ? 0 : total - done - failed - canceled - running - waiting
  const parts = [
    canceled > 0 ? `${numberText(canceled)} canceled` : '',
    open > 0 ? `${numberText(open)} without an end` : '',
  ]
  return parts.filter((part) => part !== '').join(', ')
}

function Bar({ one }: { readonly one: Name }) {
  const { total, done, failed, canceled, running, name, text } = one
  const share = (count: number): string => `${(100 * count) / Math.max(1, total)}%`
  const others = othersText(one)
  return (
    <div class="progress-cell">
      <div
        class="bar-track"
        role="img"
        aria-label={`${done} done, ${failed} failed, ${running} running of ${total}`}
      >
        <span class={colourClass(name)} style={{ width: share(done) }} />
        <span class="red" style={{ width: share(failed) }} />
        <span class="grey" style={{ width: share(canceled) }} />
        <span class={`${colourClass(name)} pale`} style={{ width: share(running) }} />
      </div>
      {text === '' ? null : <div class="muted small">{safeText(text, 120)}</div>}
      {others === '' ? null : <div class="muted small">{others}</div>}
    </div>
  )
}

const columns = [
  { title: 'name', cell: ({ name }: Name) => <NameButton name={name} /> },
  { title: 'progress', cell: (one: Name) => <Bar one={one} /> },
  countColumn<Name>('done', ({ done }) => done),
  countColumn<Name>('failed', ({ failed }) => failed),
  countColumn<Name>('running', ({ running }) => running),
  countColumn<Name>('waiting', ({ waiting }) => waiting),
  countColumn<Name>('total', ({ total }) => total),
  secondsColumn<Name>('left', ({ etaSeconds }) => etaSeconds),
  secondsColumn<Name>('p50', ({ p50 }) => p50),
  secondsColumn<Name>('p95', ({ p95 }) => p95),
  secondsColumn<Name>('max', ({ max }) => max),
  secondsColumn<Name>('sum', ({ totalSeconds }) => totalSeconds),
]
