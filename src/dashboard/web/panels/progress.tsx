/** How far the tasks of each name are. */

import type { ProgressView } from '../../protocol.ts'
import { numberText, secondsText } from '../../../views/readable.ts'
import { NotShown, PanelBody } from '../parts/panel.tsx'
import { Table } from '../parts/table.tsx'
import { pageState, updateState } from '../state/fragment.ts'
import { colourClass, nameText, safeText } from '../state/names.ts'
import { filter, useView } from '../state/views.ts'

type Name = ProgressView['names'][number]

export function ProgressPanel() {
  const limits = filter.value
  const state = useView('progress', limits === null ? null : { kind: 'progress', filter: limits })
  const emptyText = ({ names }: ProgressView): string | null =>
    names.length === 0 ? 'No task has been submitted.' : null
  return (
    <PanelBody state={state} emptyText={emptyText}>
      {({ names, notShown }) => (
        <>
          <Table
            caption="Tasks by name"
            isCaptionHidden
            columns={columns}
            rows={names}
            keyOf={({ name }) => name}
          />
          <NotShown text={notShown} />
        </>
      )}
    </PanelBody>
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

function Bar({ one }: { readonly one: Name }) {
  const { total, done, failed, canceled, running, name, text } = one
  const share = (count: number): string => `${(100 * count) / Math.max(1, total)}%`
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
    </div>
  )
}

const seconds = (title: string, of: (one: Name) => number | null) => ({
  title,
  isNumber: true,
  cell: (one: Name) => secondsText(of(one)),
})

const count = (title: string, of: (one: Name) => number) => ({
  title,
  isNumber: true,
  cell: (one: Name) => (
    <span class={of(one) === 0 ? 'zero' : undefined}>{numberText(of(one))}</span>
  ),
})

const columns = [
  { title: 'name', cell: ({ name }: Name) => <NameButton name={name} /> },
  { title: 'progress', cell: (one: Name) => <Bar one={one} /> },
  count('done', ({ done }) => done),
  count('failed', ({ failed }) => failed),
  count('running', ({ running }) => running),
  count('waiting', ({ waiting }) => waiting),
  count('total', ({ total }) => total),
  seconds('left', ({ etaSeconds }) => etaSeconds),
  seconds('p50', ({ p50 }) => p50),
  seconds('p95', ({ p95 }) => p95),
  seconds('max', ({ max }) => max),
  seconds('sum', ({ totalSeconds }) => totalSeconds),
]
