/** The use of each node and GPU, on the axis of the stream. */

import type { ResourcesPanelView } from '../../protocol.ts'
import { PanelBody } from '../parts/panel.tsx'
import { ChartRow, ChartTicks, type Series } from '../parts/time-chart.tsx'
import { safeText } from '../state/names.ts'
import { cursorTime, zoom } from '../state/time-axis.ts'
import { filter, useView } from '../state/views.ts'

type Node = ResourcesPanelView['nodes'][number]

export function ResourcesPanel() {
  const [limits, range] = [filter.value, zoom.value]
  const state = useView(
    'resources',
    limits === null ? null : { kind: 'resources', filter: limits, range: range ?? {} },
  )
  return (
    <PanelBody state={state} emptyText={emptyText}>
      {({ nodes }) => (
        <>
          {nodes.map((node) => (
            <NodeCharts key={`${node.nodeId} ${node.backend}`} node={node} />
          ))}
          <ChartTicks />
        </>
      )}
    </PanelBody>
  )
}

const emptyText = ({ nodes }: ResourcesPanelView): string | null =>
  nodes.length === 0
    ? 'There is no measurement of a node. Nodes are measured every 5 seconds while telemetry is on.'
    : null

function NodeCharts({ node }: { readonly node: Node }) {
  const { nodeId, backend, times, hasLeft } = node
  const gpus = node.gpus.map(({ id, percent }, at): Series => {
    return { label: `GPU ${id}`, colour: `c${2 + (at % 8)}`, values: percent }
  })
  const series: Series[] = [
    { label: 'CPU', colour: 'c0', values: node.cpu },
    { label: 'memory', colour: 'c1', values: node.memory },
    ...gpus,
  ]
  const shown = series.filter(({ values }) => values.some((value) => value !== null))
  return (
    <ChartRow
      title={safeText(nodeId, 60)}
      maxLabel="100 %"
      label={`use of ${safeText(nodeId, 60)} in percent`}
      times={times}
      series={shown}
      max={100}
      height={84}
    >
      <span class="muted">
        {safeText(backend, 40)}
        {hasLeft ? ', left' : ''}
      </span>
      <Values times={times} series={shown} />
    </ChartRow>
  )
}

/** The values below the pointer, or the latest ones. */
function Values({
  times,
  series,
}: {
  readonly times: readonly number[]
  readonly series: readonly Series[]
}) {
  const at = indexAt(times, cursorTime.value)
  return (
    <ul class="values">
      {series.map(({ label, colour, values }) => {
        const value = values[at] ?? null
        return (
          <li key={label}>
            <i class={`swatch ${colour}`} />
            {label} <b>{value === null ? '-' : `${Math.round(value)} %`}</b>
          </li>
        )
      })}
    </ul>
  )
}

/** The last measurement at or before a time; without a time, the last one. */
function indexAt(times: readonly number[], time: number | null): number {
  if (time === null) return times.length - 1
  const after = times.findIndex((one) => one > time)
  return after === -1 ? times.length - 1 : Math.max(0, after - 1)
}
