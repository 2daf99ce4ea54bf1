/** The latest events that a query finds, and the numbers of custom events over time. */

import type { EventsView } from '../../protocol.ts'
import { PanelBody, QueryBar, TaskButton } from '../parts/panel.tsx'
import { idColumn, numberColumn, Table } from '../parts/table.tsx'
import { ChartRow, ChartTicks } from '../parts/time-chart.tsx'
import { pageState } from '../state/fragment.ts'
import { clockText, momentText, nameText, safeText } from '../state/names.ts'
import { filter, useView } from '../state/views.ts'

type Event = EventsView['events'][number]

const limit = 200

export function EventsPanel() {
  const [limits, { q }] = [filter.value, pageState.value]
  const state = useView(
    'events',
    limits === null ? null : { kind: 'events', filter: limits, q, limit },
  )
  return (
    <>
      <QueryBar
        example="type:TaskFailed name:/sim.*/ dur>2s"
        problem={safeText(state.view?.problem ?? '')}
      />
      <PanelBody state={state} emptyText={() => null}>
        {({ events, plots }) => (
          <>
            {plots.map(({ title, times, values }) => (
              <ChartRow
                key={title}
                title={safeText(title, 80)}
                maxLabel={String(Number(Math.max(...values).toPrecision(4)))}
                label={`${safeText(title, 80)} over time`}
                times={times}
                series={[{ label: title, colour: 'c0', values }]}
                height={70}
              />
            ))}
            {plots.length === 0 ? null : <ChartTicks />}
            {events.length === 0 ? (
              <p class="empty">
                {q === '' ? 'No event has happened.' : 'No event matches the query.'}
              </p>
            ) : (
              <Table
                caption="Events, newest first"
                columns={columns}
                rows={events}
                keyOf={(_, at) => String(at)}
              />
            )}
          </>
        )}
      </PanelBody>
    </>
  )
}

const columns = [
  numberColumn<Event>('time', ({ time }) => (
    <span title={clockText(time)}>{momentText(time)}</span>
  )),
  {
    title: 'type',
    cell: ({ type }: Event) => (
      <span class={type === 'TaskFailed' ? 'bad' : undefined}>{safeText(type, 60)}</span>
    ),
  },
  {
    title: 'task',
    cell: ({ task }: Event) => (
      <span class="id">{task === null ? null : <TaskButton uid={task} />}</span>
    ),
  },
  { title: 'name', cell: ({ name }: Event) => (name === '' ? '' : nameText(name)) },
  idColumn('node', ({ node }: Event) => node ?? ''),
  { title: 'details', cell: ({ text }: Event) => safeText(text, 300) },
]
