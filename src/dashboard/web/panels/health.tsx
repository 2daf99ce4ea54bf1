/** How well the run, its telemetry and this dashboard work. */

import type { HealthPanelView } from '../../protocol.ts'
import { Facts, PanelBody } from '../parts/panel.tsx'
import { idColumn, numberColumn, Table } from '../parts/table.tsx'
import { ChartRow, ChartTicks } from '../parts/time-chart.tsx'
import { momentText, safeText } from '../state/names.ts'
import { useView } from '../state/views.ts'

type Warning = HealthPanelView['warnings'][number]

export function HealthPanel() {
  const state = useView('health', { kind: 'health' })
  return (
    <PanelBody state={state} emptyText={() => null}>
      {({ facts, warnings, loopLag }) => (
        <>
          <Facts facts={facts} />
          {loopLag.times.length < 2 ? null : (
            <>
              <LoopLag {...loopLag} />
              <ChartTicks />
            </>
          )}
          <h3>Warnings</h3>
          {warnings.length === 0 ? (
            <p class="empty">There is no warning.</p>
          ) : (
            <WarningsTable warnings={warnings} />
          )}
        </>
      )}
    </PanelBody>
  )
}

function LoopLag({ times, ms }: HealthPanelView['loopLag']) {
  const max = ms.reduce((a, b) => Math.max(a, b), 0)
  return (
    <ChartRow
      title="Event loop lag"
      maxLabel={`${max.toFixed(0)} ms`}
      label="lag of the event loop in milliseconds"
      times={times}
      series={[{ label: 'lag', colour: 'c0', values: ms }]}
      height={70}
    >
      <span class="muted">of the program that runs the session</span>
    </ChartRow>
  )
}

interface WarningsTableProps {
  readonly warnings: readonly Warning[]
}

export const WarningsTable = ({ warnings }: WarningsTableProps) => (
  <Table caption="Warnings" columns={columns} rows={warnings} keyOf={(_, at) => String(at)} />
)

const columns = [
  numberColumn<Warning>('time', ({ time }) => momentText(time)),
  { title: 'event', cell: ({ type }: Warning) => safeText(type, 60) },
  idColumn('about', ({ subject }: Warning) => subject),
  { title: 'reason', cell: ({ text }: Warning) => safeText(text, 400) },
]
