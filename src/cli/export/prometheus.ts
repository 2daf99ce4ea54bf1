/** The totals of a run in the text format of Prometheus, with the names of the live endpoint. */

import { addValue, createDistribution, type Distribution } from '../../events/measurement.ts'
import {
  nodeInstruments,
  taskHistograms,
  taskInstruments,
} from '../../telemetry/metrics/metrics.ts'
import {
  distributionLines,
  headLines,
  labelText,
  pointLine,
  toMetricHead,
} from '../../telemetry/metrics/prometheus-text.ts'
import type { RunPass } from '../../views/all-panels.ts'
import { countSubmitted } from '../../views/panels/counts.ts'
import { run } from '../../views/panels/run.ts'
import { eachTask } from '../../views/tasks.ts'

/**
 * Instruments of tasks have one value for the run, histograms one distribution per executable, and
 * instruments of nodes one value per node.
 */
export function prometheusText(pass: RunPass): string {
  const { sessionId } = run.show(pass.states.run)
  const recorded = pass.counts.totals
  const totals = { ...recorded, submitted: countSubmitted(recorded) }
  let text = ''
  for (const instrument of taskInstruments) {
    const head = toMetricHead(instrument)
    const value = instrument.total(totals)
    text += headLines(head) + pointLine(head, labelText({ session_id: sessionId }), value)
  }
  text += distributionLines(collectDistributions(pass, sessionId))
  for (const instrument of nodeInstruments) {
    const head = toMetricHead(instrument)
    text += headLines(head)
    for (const node of pass.states.resources.nodes.values()) {
      const value = instrument.perNode(node)
      const labels = { session_id: sessionId, backend: node.backend, node_id: node.nodeId }
      if (value !== null) text += pointLine(head, labelText(labels), value)
    }
  }
  return text
}

function collectDistributions(pass: RunPass, session_id: string): Distribution[] {
  const all = taskHistograms.map((instrument) => {
    return { instrument, byName: new Map<string, Distribution>() }
  })
  for (const { name: executable, story, seconds, state } of eachTask(pass)) {
    const { queued, started } = story
    const duration = state === 'DONE' || state === 'FAILED' ? seconds : null
    const values = [duration, queued === null || started === null ? null : started - queued]
    for (const [at, { instrument, byName }] of all.entries()) {
      const value = values[at] ?? null
      if (value === null) continue
      const known = byName.get(executable)
      const distribution = known ?? createDistribution(instrument, { session_id, executable })
      if (known === undefined) byName.set(executable, distribution)
      addValue(distribution, value)
    }
  }
  return all.flatMap(({ byName }) => [...byName.values()])
}
