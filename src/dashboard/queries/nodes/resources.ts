/** The use of nodes and GPUs over time. */

import { compareWorkers } from '../../../views/panels/lane-rows.ts'
import { showNodeSeries } from '../../../views/panels/resources.ts'
import type { SeriesPoint } from '../../../views/series.ts'
import type { ResourcesPanelView, TimeRange } from '../../protocol.ts'
import type { RunMoment } from '../run-moment.ts'
import { describeNotShown, shownText } from '../shown-texts.ts'

const maxNodes = 100

/** If there are too many nodes, the busiest are shown. Nodes are in the order of their names. */
export function showResources({ pass }: RunMoment, range: TimeRange): ResourcesPanelView {
  const { states } = pass
  const all = showNodeSeries(states.resources).map((series) => {
    const points = inRange(series.points, range)
    return { ...series, points, busy: meanOf(points.map(({ values: [cpu] }) => cpu ?? null)) }
  })
  const shown = all
    .toSorted((a, b) => b.busy - a.busy)
    .slice(0, maxNodes)
    .toSorted((a, b) => compareWorkers(a.node_id, b.node_id))
  const usages = [...states.resources.nodes.values()]
  const presentNodes = new Set(usages.flatMap(({ hasLeft, nodeId }) => (hasLeft ? [] : [nodeId])))
  return {
    nodes: shown.map(({ backend, node_id: nodeId, points, gpus }) => ({
      nodeId: shownText(nodeId),
      backend: shownText(backend),
      hasLeft: !presentNodes.has(nodeId),
      times: points.map(({ time }) => time),
      cpu: points.map(({ values }) => values[0] ?? null),
      memory: points.map(({ values }) => values[1] ?? null),
      gpus: gpus.map((gpu) => ({
        id: gpu.gpu_id,
        percent: sampleAt(
          gpu.points,
          points.map(({ time }) => time),
        ),
      })),
    })),
    notShown: describeNotShown([all.length - shown.length, 'node']),
  }
}

const inRange = (points: readonly SeriesPoint[], { from, to }: TimeRange): SeriesPoint[] =>
  points.filter(({ time }) => time >= (from ?? -Infinity) && time <= (to ?? Infinity))

function meanOf(values: readonly (number | null)[]): number {
  const known = values.filter((value) => value !== null)
  return known.length === 0 ? 0 : known.reduce((sum, one) => sum + one, 0) / known.length
}

/** Returns the values of a series at the times of another series, whose intervals may differ. */
function sampleAt(points: readonly SeriesPoint[], times: readonly number[]): (number | null)[] {
  const step = Math.max(intervalOf(points), intervalOf(times.map((time) => ({ time }))))
  let at = 0
  return times.map((time) => {
    while ((points[at + 1]?.time ?? Infinity) <= time) at++
    const point = points[at]
    return point === undefined || Math.abs(point.time - time) >= step
      ? null
      : (point.values[0] ?? null)
  })
}

const intervalOf = (points: readonly Pick<SeriesPoint, 'time'>[]): number =>
  points.reduce(
    (min, { time }, at) => (at === 0 ? min : Math.min(min, time - (points[at - 1]?.time ?? 0))),
    points.length < 2 ? 1 : Infinity,
  )
