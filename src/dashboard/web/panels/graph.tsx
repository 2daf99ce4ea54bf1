/** The graph of tasks, or of names if there are many tasks, with the critical path. */

import type { GraphPanelView } from '../../protocol.ts'
import { countText, cutMiddle, secondsText } from '../../../views/readable.ts'
import { FilteredPanel } from '../parts/panel.tsx'
import { updateState } from '../state/fragment.ts'
import { colourClass, nameText, safeText } from '../state/names.ts'
import { layOutGraph, nodeHeight, nodeWidth, type PlacedNode } from './graph-layout.ts'

export function GraphPanel() {
  return (
    <FilteredPanel kind="graph" emptyText={emptyText}>
      {(view) => (
        <>
          <p>{describe(view)}</p>
          <Drawing view={view} />
        </>
      )}
    </FilteredPanel>
  )
}

const emptyText = ({ nodes, edges }: GraphPanelView): string | null =>
  nodes.length === 0 || edges.length === 0 ? 'No task depends on another one.' : null

function describe({ isCollapsed, criticalSeconds }: GraphPanelView): string {
  const what = isCollapsed ? 'Each box is a name, with all its tasks.' : 'Each box is a task.'
  if (criticalSeconds === null) return what
  const seconds = secondsText(criticalSeconds)
  return `${what} The critical path (thick) took ${seconds}: more slots would not shorten it.`
}

function Drawing({ view }: { readonly view: GraphPanelView }) {
  const { nodes, lines, width, height } = layOutGraph(view)
  return (
    <div class="scroll" role="region" tabIndex={0} aria-label="Graph of dependencies">
      <svg class="graph" viewBox={`0 0 ${width} ${height}`} width={width} height={height}>
        {lines.map(({ path, isCritical }) => (
          <path key={path} class={isCritical ? 'edge critical' : 'edge'} d={path} />
        ))}
        {nodes.map((node) => (
          <Box key={node.id} node={node} isCollapsed={view.isCollapsed} />
        ))}
      </svg>
    </div>
  )
}

function Box({ node, isCollapsed }: { readonly node: PlacedNode; readonly isCollapsed: boolean }) {
  const { id, label, x, y, isCritical } = node
  const open = (): void => updateState(isCollapsed ? { name: id } : { task: id })
  const onKey = (event: KeyboardEvent): void => {
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault()
      open()
    }
  }
  const title = cutMiddle(nameText(label), 24)
  const text = countsOf(node, isCollapsed)
  return (
    <g
      class={isCritical ? 'box critical' : 'box'}
      transform={`translate(${x} ${y})`}
      role="button"
      tabindex={0}
      onClick={open}
      onKeyDown={onKey}
    >
      <rect width={nodeWidth} height={nodeHeight} rx="4" />
      <rect
        class={node.failed > 0 ? 'red' : colourClass(isCollapsed ? id : label)}
        width="4"
        height={nodeHeight}
        rx="2"
      />
      <text class="title" x="12" y="17">
        {title}
      </text>
      <text x="12" y="33">
        {text}
      </text>
    </g>
  )
}

function countsOf({ tasks, done, failed, running, id }: PlacedNode, isCollapsed: boolean): string {
  if (isCollapsed) {
    const parts = [failed > 0 ? `${failed} failed` : '', running > 0 ? `${running} running` : '']
    return [countText(tasks, 'task'), ...parts].filter((part) => part !== '').join(', ')
  }
  const state = failed > 0 ? 'failed' : running > 0 ? 'running' : done > 0 ? 'done' : 'waiting'
  return `${cutMiddle(safeText(id), 16)} ${state}`
}
