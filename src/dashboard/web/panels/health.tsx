/** How well the run, its telemetry and this dashboard work. */

import type { HealthPanelView } from '../../protocol.ts'
import { Facts, PanelBody } from '../parts/panel.tsx'
import { numberColumn, Table } from '../parts/table.tsx'
import { ChartRow } from '../parts/time-chart.tsx'
import { runTimeText, safeText } from '../state/names.ts'
import { useView } from '../state/views.ts'

type Warning = HealthPanelView['warnings'][number]

export function HealthPanel() {
  const state = useView('health', { kind: 'health' })
  return (
    <PanelBody state={state} emptyText={() => null}>
      {({ facts, warnings, loopLag }) => (
        <>
          <Facts facts={facts} />
          {loopLag.times.length < 2 ? null : <LoopLag {...loopLag} />}
          <h3>Warnings</h3>
          {warnings.length === 0 ? (
            <p class="empty">There is no warning.</p>
          ) : (
            <Table
              caption="Warnings"
              columns={columns}
              rows={warnings}
              keyOf={(_, at) => String(at)}
            />
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

const columns = [
  numberColumn<Warning>('time', ({ time }) => runTimeText(time)),
  { title: 'type', cell: ({ type }: Warning) => safeText(type, 60) },
  { title: 'about', cell: ({ subject }: Warning) => safeText(subject, 80) },
  { title: 'what happened', cell: ({ text }: Warning) => safeText(text, 400) },
]
