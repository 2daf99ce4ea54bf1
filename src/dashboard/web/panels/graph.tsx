/** The graph of tasks, or of names if there are many tasks, with the critical path. */

import type { GraphPanelView } from '../../protocol.ts'
import { countText, cutMiddle, numberText, secondsText } from '../../../views/readable.ts'
import { FilteredPanel } from '../parts/panel.tsx'
import { updateState } from '../state/fragment.ts'
import { colourClass, nameText, safeText } from '../state/names.ts'

type GraphNode = GraphPanelView['nodes'][number]

interface PlacedNode extends GraphNode {
  readonly x: number
  readonly y: number
}

interface GraphLine {
  readonly path: string
  readonly isCritical: boolean
}

interface GraphLayout {
  readonly nodes: readonly PlacedNode[]
  readonly lines: readonly GraphLine[]
  readonly width: number
  readonly height: number
}

const nodeWidth = 190
const nodeHeight = 42
const gapX = 56
const gapY = 12

function layOutGraph({ nodes, edges }: GraphPanelView): GraphLayout {
  const columns = Map.groupBy(nodes, ({ depth }) => depth)
  const depths = [...columns.keys()].toSorted((a, b) => a - b)
  const before = Map.groupBy(edges, ({ to }) => to)
  const placedNodes = new Map<string, PlacedNode>()
  for (const [column, depth] of depths.entries()) {
    // A box is near the middle of its dependencies, so that fewer lines cross.
    const middle = ({ id }: GraphNode): number => {
      const rows = (before.get(id) ?? []).map(({ from }) => placedNodes.get(from)?.y ?? 0)
      return rows.length === 0 ? 0 : rows.reduce((a, b) => a + b, 0) / rows.length
    }
    const ordered = (columns.get(depth) ?? [])
      .map((node) => ({ node, at: middle(node) }))
      .toSorted((a, b) => a.at - b.at)
    let free = 1
    for (const { node, at } of ordered) {
      const y = Math.max(free, at)
      placedNodes.set(node.id, { ...node, x: 1 + column * (nodeWidth + gapX), y })
      free = y + nodeHeight + gapY
    }
  }
  const lines = edges.flatMap(({ from, to, isCritical }): GraphLine[] => {
    const [a, b] = [placedNodes.get(from), placedNodes.get(to)]
    return a === undefined || b === undefined ? [] : [{ path: lineBetween(a, b), isCritical }]
  })
  const bottom = [...placedNodes.values()].reduce((max, { y }) => Math.max(max, y), 0)
  return {
    nodes: [...placedNodes.values()],
    // Lines of the critical path are drawn above the others.
    lines: lines.toSorted((a, b) => Number(a.isCritical) - Number(b.isCritical)),
    width: depths.length * (nodeWidth + gapX) + 2,
    height: bottom + nodeHeight + 2,
  }
}

/**
 * A line from the right side of a box to the left side of a later one. Names may depend on each
 * other in a circle. Lines within a column or back to an earlier column run beside the boxes.
 */
function lineBetween(a: PlacedNode, b: PlacedNode): string {
  const [leftOfA, leftOfB] = [a.x, b.x]
  const [rightOfA, rightOfB] = [a.x + nodeWidth, b.x + nodeWidth]
  const [y1, y2] = [a.y + nodeHeight / 2, b.y + nodeHeight / 2]
  if (a.id === b.id) {
    const [out, top, bottom] = [rightOfA + 24, y1 - 8, y1 + 8]
    return `M${rightOfA} ${top}C${out} ${top} ${out} ${bottom} ${rightOfA} ${bottom}`
  }
  if (leftOfA === leftOfB) {
    // Lines that pass more boxes run further outside, so that they do not overlap.
    const out = rightOfA + Math.min(gapX, 16 + Math.abs(y2 - y1) / 8)
    return `M${rightOfA} ${y1 + 4}C${out} ${y1 + 4} ${out} ${y2 - 4} ${rightOfB} ${y2 - 4}`
  }
  const [x1, x2] = leftOfB > leftOfA ? [rightOfA, leftOfB] : [leftOfA, rightOfB]
  const bend = (x2 - x1) / 2
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
}

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
  const boxText = isCollapsed ? 'Each box is a name, with all its tasks.' : 'Each box is a task.'
  if (criticalSeconds === null) return boxText
  const seconds = secondsText(criticalSeconds)
  return `${boxText} The critical path (thick) took ${seconds}: more slots would not shorten it.`
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
  const text = countsOf(node)
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

function countsOf({ tasks, failed, running, id, state }: PlacedNode): string {
  if (state !== null) return `${cutMiddle(safeText(id), 16)} ${state.toLowerCase()}`
  const parts = [
    failed > 0 ? `${numberText(failed)} failed` : '',
    running > 0 ? `${numberText(running)} running` : '',
  ]
  return [countText(tasks, 'task'), ...parts].filter((part) => part !== '').join(', ')
}
