/** The records of a folder. A click opens one. */

import type { RecordsView } from '../../protocol.ts'
import { timeText } from '../../../views/readable.ts'
import { PanelBody } from '../parts/panel.tsx'
import { countColumn, numberColumn, secondsColumn, Table } from '../parts/table.tsx'
import { updateState } from '../state/fragment.ts'
import { bytesText, safeText } from '../state/names.ts'
import { useView } from '../state/views.ts'

type Entry = RecordsView['records'][number]

export function Records() {
  const state = useView('records', { kind: 'records' })
  return (
    <section aria-labelledby="records">
      <h2 id="records">Records</h2>
      <PanelBody
        state={state}
        emptyText={({ records }) =>
          records.length === 0 ? 'There is no record in this folder.' : null
        }
      >
        {({ records }) => (
          <Table caption="Records" columns={columns} rows={records} keyOf={({ file }) => file} />
        )}
      </PanelBody>
    </section>
  )
}

const columns = [
  {
    title: 'record',
    cell: ({ file, sessionId }: Entry) => (
      <button
        type="button"
        class="link"
        title={safeText(file, 400)}
        onClick={() => updateState({ record: file })}
      >
        {safeText(sessionId, 80) || safeText(file, 80)}
      </button>
    ),
  },
  {
    title: 'state',
    cell: ({ state }: Entry) => <span class={`tag ${state}`}>{safeText(state)}</span>,
  },
  { title: 'started', cell: ({ startTime }: Entry) => timeText(startTime).slice(0, 19) },
  secondsColumn<Entry>('took', ({ durationSeconds }) => durationSeconds),
  countColumn<Entry>('done', ({ done }) => done),
  countColumn<Entry>('failed', ({ failed }) => failed),
  countColumn<Entry>('canceled', ({ canceled }) => canceled),
  numberColumn<Entry>('size', ({ bytes }) => bytesText(bytes)),
]
