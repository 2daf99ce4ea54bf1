/** Places the boxes of the graph in columns: each to the right of those that it depends on. */

import type { GraphPanelView } from '../../protocol.ts'

type GraphNode = GraphPanelView['nodes'][number]

export interface PlacedNode extends GraphNode {
  readonly x: number
  readonly y: number
}

interface GraphLine {
  readonly path: string
  readonly isCritical: boolean
}

export interface GraphLayout {
  readonly nodes: readonly PlacedNode[]
  readonly lines: readonly GraphLine[]
  readonly width: number
  readonly height: number
}

export const nodeWidth = 190
export const nodeHeight = 42
const gapX = 56
const gapY = 12

export function layOutGraph({ nodes, edges }: GraphPanelView): GraphLayout {
  const columns = Map.groupBy(nodes, ({ depth }) => depth)
  const depths = [...columns.keys()].toSorted((a, b) => a - b)
  const before = Map.groupBy(edges, ({ to }) => to)
  const placed = new Map<string, PlacedNode>()
  for (const [column, depth] of depths.entries()) {
    // Close to the middle of what a box depends on, so that lines cross less.
    const middle = ({ id }: GraphNode): number => {
      const rows = (before.get(id) ?? []).map(({ from }) => placed.get(from)?.y ?? 0)
      return rows.length === 0 ? 0 : rows.reduce((a, b) => a + b, 0) / rows.length
    }
    const ordered = (columns.get(depth) ?? [])
      .map((node) => ({ node, at: middle(node) }))
      .toSorted((a, b) => a.at - b.at)
    let free = 1
    for (const { node, at } of ordered) {
      const y = Math.max(free, at)
      placed.set(node.id, { ...node, x: 1 + column * (nodeWidth + gapX), y })
      free = y + nodeHeight + gapY
    }
  }
  const lines = edges.flatMap(({ from, to, isCritical }): GraphLine[] => {
    const [a, b] = [placed.get(from), placed.get(to)]
    return a === undefined || b === undefined ? [] : [{ path: lineBetween(a, b), isCritical }]
  })
  const bottom = [...placed.values()].reduce((max, { y }) => Math.max(max, y), 0)
  return {
    nodes: [...placed.values()],
    // Lines of the critical path are drawn above the others.
    lines: lines.toSorted((a, b) => Number(a.isCritical) - Number(b.isCritical)),
    width: depths.length * (nodeWidth + gapX) - gapX + 2,
    height: bottom + nodeHeight + 2,
  }
}

function lineBetween(a: PlacedNode, b: PlacedNode): string {
  const [x1, y1] = [a.x + nodeWidth, a.y + nodeHeight / 2]
  const [x2, y2] = [b.x, b.y + nodeHeight / 2]
  if (a.id === b.id) {
    return `M${x1} ${y1 - 8}C${x1 + 24} ${y1 - 8} ${x1 + 24} ${y1 + 8} ${x1} ${y1 + 8}`
  }
  const bend = Math.max(gapX / 2, (x2 - x1) / 2)
  return `M${x1} ${y1}C${x1 + bend} ${y1} ${x2 - bend} ${y2} ${x2} ${y2}`
}
