/** All data that the report of a run shows, as plain data of limited size. Pure. */

import type { RecordViews } from '../record/record-views.ts'
import { failures, type FailuresView } from '../views/panels/failures.ts'
import { graph, type GraphView } from '../views/panels/graph.ts'
import { inference, type InferenceView } from '../views/panels/inference.ts'
import { lanes, type LanesView } from '../views/panels/lanes.ts'
import type { RecordState } from '../views/panels/run.ts'
import { type NodeSeries, showNodeSeries } from '../views/panels/resources.ts'
import { findTasks, type TaskView } from '../views/tasks.ts'
import { createOverview, type RunOverview } from '../views/texts/run-overview.ts'

/** Facts about the record that are not in the views. */
export interface RunFacts {
  readonly path: string
  readonly state: RecordState
  /**
   * The current time for a running session, and otherwise the time of its latest event, in
   * wall-clock seconds.
   */
  readonly now: number
  /** The scope that the report is limited to; `null` for all tasks. */
  readonly scope: string | null
  readonly attributes: Readonly<Record<string, unknown>>
  /** The command of `tutti run`, without secret arguments. */
  readonly command: string | null
}

export interface ReportData extends RunOverview {
  readonly facts: RunFacts
  readonly failures: FailuresView
  readonly lanes: LanesView
  readonly series: readonly NodeSeries[]
  readonly graph: GraphView
  readonly inference: InferenceView
  readonly tasks: readonly TaskView[]
  readonly totalTasks: number
  readonly failedTasks: readonly TaskView[]
  readonly slowestTasks: readonly TaskView[]
  readonly skippedLines: number
  readonly firstProblems: readonly string[]
  readonly isTorn: boolean
  readonly missing: string | null
  readonly files: readonly string[]
}

const maxSegments = 5000
const maxTasks = 10_000
const maxOnPaper = 20
const maxNodes = 40
const maxGroups = 30
const maxGraphNodes = 60

export function collectReport(
  views: RecordViews,
  facts: RunFacts,
  firstProblems: readonly string[],
): ReportData {
  const { pass } = views
  const { states } = pass
  const { state, now } = facts
  const { tasks, total } = findTasks(pass, { limit: maxTasks, now })
  return {
    ...createOverview(pass, state, now),
    facts,
    failures: failures.show(states.failures, { limit: maxGroups }),
    lanes: lanes.show(states.lanes, { limit: maxSegments, now }),
    series: showNodeSeries(states.resources).slice(0, maxNodes),
    graph: graph.show(states.graph, { names: states.names, limit: maxGraphNodes }),
    inference: inference.show(states.inference),
    tasks,
    totalTasks: total,
    failedTasks: findTasks(pass, { state: 'FAILED', limit: maxOnPaper, now }).tasks,
    // Tasks with a reused result are omitted, because they did not run.
    slowestTasks: findTasks(pass, { order: 'ran', limit: maxOnPaper, now }).tasks.filter(
      ({ ran }) => ran !== null,
    ),
    skippedLines: views.bad,
    firstProblems,
    // A record that is still growing usually ends with an incomplete line, which is not a problem.
    isTorn: views.torn !== null && state !== 'running',
    missing: views.missing,
    files: views.files,
  }
}
