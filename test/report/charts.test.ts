import { expect, it } from 'vitest'
import { graphDrawing } from '../../src/report/page/charts.ts'

const node = (name: string) => ({ name, tasks: 2, failed: 0, completed: 2, running: 0 })
const rest = { otherNodes: 0, otherEdges: 0, dropped: 0 }

it('graph: tasks that wait for others of their name have a loop that is within the drawing', () => {
  const nodes = [node('prepare'), node('step')]
  const edges = [
    { from: 0, to: 1, count: 1 },
    { from: 1, to: 1, count: 5 },
  ]
  const html = graphDrawing({ ...rest, nodes, edges })
  const width = Number(/viewBox="0 0 ([\d.]+)/.exec(html)?.[1])
  const paths = Array.from(html.matchAll(/ d="M([\d.]+) ([\d.]+)C([\d. ]+)"/g), (found) =>
    found.slice(1).flatMap((part) => part.split(' ').map(Number)),
  )
  expect(paths).toHaveLength(2)
  const [x1 = 0, y1 = 0, bend1 = 0, , bend2 = 0, , x2 = 0, y2 = 0] = paths[1] ?? []
  expect([x1 === x2, Math.abs(y1 - y2) > 15, bend1 === bend2]).toEqual([true, true, true])
  // A cubic curve reaches three quarters of the way to its two control points.
  const reach = x1 + 0.75 * (bend1 - x1)
  expect(reach).toBeGreaterThan(x1 + 10)
  expect(reach).toBeLessThan(width)
  expect(graphDrawing({ ...rest, nodes, edges: edges.slice(0, 1) })).toContain('viewBox="0 0 444 ')
})
