/** The table of all tasks. Only the visible rows exist on the page. */

import { useRef, useState } from 'preact/hooks'
import type { TaskRowView, TasksPanelView, TasksPart } from '../../protocol.ts'
import { countText, numberText, percentText, secondsText } from '../../../views/readable.ts'
import { PanelBody, QueryBar, TaskButton } from '../parts/panel.tsx'
import { pageState, taskOrder } from '../state/fragment.ts'
import { colourClass, nameText, safeText } from '../state/names.ts'
import { filter, useView } from '../state/views.ts'

const rowHeight = 30
const shownRows = 18
/** Rows requested beyond the visible ones, so that a little scrolling needs no request. */
const spareRows = 30
/** Browsers limit the height of an element. More rows are scrolled in larger steps. */
const maxHeight = 4_000_000

export function TasksPanel() {
  const [firstVisible, setFirstVisible] = useState(0)
  const [limits, { q }, order] = [filter.value, pageState.value, taskOrder.value]
  const firstLoaded = Math.max(0, Math.floor((firstVisible - spareRows / 2) / 10) * 10)
  const state = useView(
    'tasks',
    limits === null
      ? null
      : {
          kind: 'tasks',
          filter: limits,
          q,
          ...order,
          offset: firstLoaded,
          limit: shownRows + spareRows,
        },
  )
  return (
    <>
      <QueryBar example="state:running name:/sim.*/ dur>2s" />
      <PanelBody state={state} emptyText={emptyText}>
        {(view) => (
          <Rows
            view={view}
            firstLoaded={firstLoaded}
            firstVisible={firstVisible}
            onScroll={setFirstVisible}
          />
        )}
      </PanelBody>
    </>
  )
}

const emptyText = ({ matching, total }: TasksPanelView): string | null => {
  if (matching > 0) return null
  return total === 0
    ? 'No task has been submitted.'
    : `None of the ${numberText(total)} tasks matches.`
}

interface RowsProps {
  readonly view: TasksPanelView
  readonly firstLoaded: number
  readonly firstVisible: number
  readonly onScroll: (first: number) => void
}

function Rows({ view, firstLoaded, firstVisible, onScroll }: RowsProps) {
  const frame = useRef<HTMLDivElement>(null)
  const { matching, total, rows } = view
  const shown = Math.min(shownRows, matching)
  const extra = Math.min(maxHeight, (matching - shown) * rowHeight)
  const scroll = (): void => {
    const top = frame.current?.scrollTop ?? 0
    onScroll(extra <= 0 ? 0 : Math.round((top / extra) * (matching - shown)))
  }
  const from = Math.min(firstVisible, Math.max(0, matching - shown))
  const visible = rows.slice(
    Math.max(0, from - firstLoaded),
    Math.max(0, from - firstLoaded) + shown,
  )
  const last = Math.min(from + shown, matching)
  return (
    <>
      <p class="caption" role="status">
        {matching === total
          ? countText(total, 'task')
          : `${numberText(matching)} of ${countText(total, 'task')}`}
        {matching > shown ? `, ${numberText(from + 1)} to ${numberText(last)} shown` : ''}
      </p>
      <div ref={frame} class="rows" role="region" aria-label="Tasks" tabIndex={0} onScroll={scroll}>
        <div class="rows-window">
          <table aria-rowcount={matching}>
            <caption class="hidden">Tasks</caption>
            <thead>
              <tr>
                {columns.map((column) => (
                  <Head key={column.title} {...column} />
                ))}
              </tr>
            </thead>
            <tbody>
              {visible.map((row, at) => (
                <Row key={row.uid} row={row} index={from + at + 1} />
              ))}
            </tbody>
          </table>
        </div>
        {/* Has the height of the hidden rows, so that all rows can be scrolled to. */}
        <div style={{ height: `${Math.max(0, extra)}px` }} />
      </div>
    </>
  )
}

interface HeadColumn {
  readonly title: string
  readonly sort: TasksPart['sort'] | null
  readonly isNumber: boolean
}

const columns: readonly HeadColumn[] = [
  { title: 'task', sort: 'uid', isNumber: false },
  { title: 'name', sort: 'name', isNumber: false },
  { title: 'state', sort: 'state', isNumber: false },
  { title: 'waited', sort: 'waited', isNumber: true },
  { title: 'ran', sort: 'ran', isNumber: true },
  { title: 'worker', sort: 'worker', isNumber: false },
  { title: 'error', sort: null, isNumber: false },
]

/** A click sorts, a second one reverses the order, a third one restores the default order. */
function nextOrder(sort: TasksPart['sort'], startsDown: boolean): void {
  const { sort: current, isDescending } = taskOrder.peek()
  if (current !== sort) taskOrder.value = { sort, isDescending: startsDown }
  else if (isDescending === startsDown) taskOrder.value = { sort, isDescending: !startsDown }
  else taskOrder.value = { sort: 'order', isDescending: false }
}

function Head({ title, sort, isNumber }: HeadColumn) {
  const order = taskOrder.value
  const isSorted = sort !== null && order.sort === sort
  const direction = order.isDescending ? 'descending' : 'ascending'
  return (
    <th scope="col" class={isNumber ? 'n' : undefined} aria-sort={isSorted ? direction : 'none'}>
      {sort === null ? (
        title
      ) : (
        <button type="button" class="sort" onClick={() => nextOrder(sort, isNumber)}>
          {title}
          <span aria-hidden="true">{isSorted ? (order.isDescending ? ' ↓' : ' ↑') : ''}</span>
        </button>
      )}
    </th>
  )
}

function Row({ row, index }: { readonly row: TaskRowView; readonly index: number }) {
  const { uid, name, scope, state, waited, ran, worker, progress, error } = row
  return (
    <tr aria-rowindex={index}>
      <td>
        <TaskButton uid={uid} />
      </td>
      <td title={safeText(scope === '' ? name : `${name} in ${scope}`, 400)}>
        <i class={`swatch ${colourClass(name)}`} />
        {nameText(name)}
        {scope === '' ? null : <span class="muted"> {safeText(scope, 40)}</span>}
      </td>
      <td class={state === 'FAILED' ? 'bad' : undefined}>
        {safeText(state)}
        {progress === null ? null : (
          <span class="muted">
            {' '}
            {percentText(progress.fraction)} {safeText(progress.text, 40)}
          </span>
        )}
      </td>
      <td class="n">{secondsText(waited)}</td>
      <td class="n">{secondsText(ran)}</td>
      <td title={safeText(worker)}>{safeText(worker, 60)}</td>
      <td title={safeText(error, 400)}>{safeText(error, 120)}</td>
    </tr>
  )
}
