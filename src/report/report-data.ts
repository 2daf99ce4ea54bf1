/** All data that the report of a run shows, as plain data from its views. Bounded size. Pure. */

import type { RecordState, RecordViews } from '../record/record-views.ts'
import type { RunPass } from '../views/all-panels.ts'
import { bounds, type BoundsView } from '../views/bounds/bounds.ts'
import { activeTime } from '../views/bounds/bounds-state.ts'
import { storyOf } from '../views/bounds/task-times.ts'
import { textAt, valueAt } from '../views/columns.ts'
import { counts, type CountsView, stagesOf } from '../views/panels/counts.ts'
import { failures, type FailuresView } from '../views/panels/failures.ts'
import { graph, type GraphView } from '../views/panels/graph.ts'
import { health, type HealthView } from '../views/panels/health.ts'
import { inference, type InferenceView } from '../views/panels/inference.ts'
import { lanes, type LanesView } from '../views/panels/lanes.ts'
import { type NameTimes, noTimes, timesByName } from '../views/bounds/name-times.ts'
import { allReused, durationsByName, names, type NameView } from '../views/panels/names.ts'
import type { NodeSeries, NodeSummary } from '../views/panels/resources.ts'
import { showNodes, showNodeSeries } from '../views/panels/resources.ts'
import { run, runSeconds, type RunState } from '../views/panels/run.ts'
import { stages } from '../views/lifecycle.ts'
import { type DurationStats, statsInPlace } from '../views/stats.ts'
import { uidOf } from '../views/task-index.ts'
import { findTasks, type TaskView } from '../views/tasks.ts'
import { type BoundWords, describeBounds } from './bound-words.ts'

/** Facts about the record other than its events. */
export interface RunFacts {
  readonly path: string
  readonly state: RecordState
  /** Wall-clock seconds: the current time for a running session, otherwise its latest event. */
  readonly now: number
  /** The only scope whose tasks are in the report; `null` for all tasks. */
  readonly scope: string | null
  /** Attributes of SessionStarted. */
  readonly attributes: Readonly<Record<string, unknown>>
  /** The command of `tutti run`, without secret arguments. */
  readonly command: string | null
}

/** The tasks of one name. */
export interface NameReport extends NameView, NameTimes {
  /** Mean seconds from being ready to the start; `null` if no task started. */
  readonly meanWait: number | null
  /** Mean duration of tasks that ran to their end. */
  readonly meanRun: number | null
  /** Durations of tasks that ran and are done; `null` if there are none. */
  readonly done: DurationStats | null
  /** Tasks by duration: each bar covers twice the range of the previous one, from `shortest` on. */
  readonly histogram: readonly number[]
  readonly shortest: number
}

export interface ReportData {
  readonly facts: RunFacts
  readonly run: Readonly<RunState>
  /** See `runSeconds`. */
  readonly durationSeconds: number
  readonly counts: CountsView
  /** Completed tasks that did not run, because an earlier or equal one had the result. */
  readonly reused: number
  readonly names: readonly NameReport[]
  readonly otherNames: number
  readonly failures: FailuresView
  readonly lanes: LanesView
  readonly nodes: readonly NodeSummary[]
  /** The part of the nodes' CPU utilization that the run itself used; `null` if not measured. */
  readonly runCpuPercent: number | null
  readonly series: readonly NodeSeries[]
  readonly graph: GraphView
  readonly inference: InferenceView
  readonly health: HealthView
  readonly bounds: BoundsView
  readonly words: BoundWords
  /** For the tasks that appear in the bounds and the timeline. */
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
  readonly tasks: readonly TaskView[]
  readonly totalTasks: number
  /** The first failed tasks, and those that ran longest. */
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
const maxNames = 40
const maxNodes = 40
const maxGroups = 30
const maxGraphNodes = 60
/** The bars of a histogram: doubling from a microsecond to a week, cut to the range in use. */
const firstBar = 1e-6
const bars = 40

export function collectReport(
  views: RecordViews,
  facts: RunFacts,
  firstProblems: readonly string[],
): ReportData {
  const { pass } = views
  const { states } = pass
  const latestUid = (task: number): string => uidOf(pass.counts.index, task)
  const nameOf = (task: number): string =>
    textAt(states.names.names, valueAt(states.names.nameOfTask, task))
  const { now } = facts
  const nodes = showNodes(states.resources)
  const boundsView = bounds.show(states.bounds, { counts: pass.counts, ...states, now })
  const counted = counts.show(pass.counts)
  const healthView = health.show(states.health)
  const reported = nameReports(pass, now)
  const { tasks, total } = findTasks(pass, { limit: maxTasks, now })
  return {
    facts,
    run: run.show(states.run),
    durationSeconds: runSeconds(states.run, states.bounds.attended, now),
    counts: counted,
    reused: allReused(states.names),
    names: reported.slice(0, maxNames),
    otherNames: Math.max(0, reported.length - maxNames),
    failures: failures.show(states.failures, { limit: maxGroups }),
    lanes: lanes.show(states.lanes, { limit: maxSegments, now }),
    nodes,
    runCpuPercent: runCpuPercent(nodes, boundsView, states.run.taskCpuSeconds),
    series: showNodeSeries(states.resources).slice(0, maxNodes),
    graph: graph.show(states.graph, { names: states.names, limit: maxGraphNodes }),
    inference: inference.show(states.inference),
    health: healthView,
    bounds: boundsView,
    words: describeBounds(boundsView, {
      uidOf: latestUid,
      nameOf,
      clockStep: healthView.clockStep,
      state: facts.state,
      openTasks: counted.open,
      tasks: counted.tasks,
      cpuPercent: meanCpuPercent(nodes, 'cpu_percent'),
      runCpuPercent: runCpuPercent(nodes, boundsView, states.run.taskCpuSeconds),
      replacedWorkers: replacedWorkersOf(pass),
    }),
    uidOf: latestUid,
    nameOf,
    tasks,
    totalTasks: total,
    failedTasks: findTasks(pass, { state: 'FAILED', limit: maxOnPaper, now }).tasks,
    slowestTasks: slowestTasksIn(pass, now),
    skippedLines: views.bad,
    firstProblems,
    // The last line of a growing record is mostly incomplete.
    isTorn: views.torn !== null && facts.state !== 'running',
    missing: views.missing,
    files: views.files,
  }
}

/** A reused result did not run. */
const slowestTasksIn = (pass: RunPass, now: number): TaskView[] =>
  findTasks(pass, { order: 'ran', limit: maxOnPaper, now }).tasks.filter(({ ran }) => ran !== null)

/** The mean over all nodes; `null` if not measured. */
export function meanCpuPercent(
  nodes: ReportData['nodes'],
  reading: 'cpu_percent' | 'run_cpu_percent',
): number | null {
  const means = nodes.flatMap(({ [reading]: { mean } }) => (mean === null ? [] : [mean]))
  return means.length === 0 ? null : means.reduce((sum, one) => sum + one, 0) / means.length
}

/** At least what its programs used, which may be no descendants of the process that measures. */
function runCpuPercent(
  nodes: ReportData['nodes'],
  { slots, seconds }: BoundsView,
  taskCpuSeconds: number,
): number | null {
  const measured = meanCpuPercent(nodes, 'run_cpu_percent')
  const ofTasks = (100 * taskCpuSeconds) / Math.max(1e-9, slots * seconds)
  return measured === null ? null : Math.max(measured, Math.min(100, ofTasks))
}

/** Workers are numbered: those beyond the size of their pool replaced others. */
function replacedWorkersOf({ states }: RunPass): number {
  const used = new Map<string, number>()
  for (let lane = 0; lane < states.lanes.lanes.size; lane++) {
    if (!/\/w\d+$/.test(textAt(states.lanes.lanes, lane))) continue
    const node = textAt(states.lanes.nodes, valueAt(states.lanes.nodeOfLane, lane))
    used.set(node, (used.get(node) ?? 0) + 1)
  }
  return states.bounds.nodes.reduce((sum, { backend, nodeId, workers }) => {
    const count = used.get(JSON.stringify([backend, nodeId])) ?? 0
    return sum + (workers === 0 ? 0 : Math.max(0, count - workers))
  }, 0)
}

/** Names whose tasks ran longest in total come first. */
function nameReports(pass: RunPass, now: number): NameReport[] {
  const { states } = pass
  const waits = waitsByName(pass)
  const times = timesByName({ counts: pass.counts, ...states }, now)
  const durations = durationsByName(states.names)
  const isDone = (task: number): boolean => (stagesOf(pass.counts, task) & stages.completed) !== 0
  const done = durationsByName(states.names, isDone)
  const shown = names.show(states.names, { durations: true })
  const numberOf = new Map<string, number>()
  for (let name = 0; name < states.names.names.size; name++) {
    numberOf.set(textAt(states.names.names, name), name)
  }
  return shown
    .map((view) => {
      const number = numberOf.get(view.name) ?? 0
      const { count, seconds } = waits[number] ?? { count: 0, seconds: 0 }
      const meanWait = count === 0 ? null : seconds / count
      const meanRun = view.duration?.mean ?? null
      return {
        ...view,
        ...(times[number] ?? noTimes),
        meanWait,
        meanRun,
        done: statsOf(done[number]),
        ...histogramOf(durations[number] ?? new Float64Array(0)),
      }
    })
    .toSorted((a, b) => b.ranSeconds - a.ranSeconds || b.total - a.total)
}

function waitsByName({ counts: counted, states }: RunPass): { count: number; seconds: number }[] {
  const sums = Array.from({ length: states.names.names.size }, () => ({ count: 0, seconds: 0 }))
  for (let task = 0; task < states.names.tasks; task++) {
    const { ready, started } = storyOf(states.bounds.times, task, stagesOf(counted, task))
    const sum = sums[valueAt(states.names.nameOfTask, task)]
    if (sum === undefined || ready === null || started === null) continue
    sum.count++
    const { pauses } = states.bounds
    sum.seconds += Math.max(0, activeTime(pauses, started) - activeTime(pauses, ready))
  }
  return sums
}

const statsOf = (durations: Float64Array | undefined): DurationStats | null =>
  durations === undefined || durations.length === 0 ? null : statsInPlace(durations)

function histogramOf(durations: Float64Array): Pick<NameReport, 'histogram' | 'shortest'> {
  const all = Array.from({ length: bars }, () => 0)
  for (const seconds of durations) {
    const bar = Math.floor(Math.log2(Math.max(firstBar, seconds) / firstBar))
    const at = Math.min(bars - 1, bar)
    all[at] = (all[at] ?? 0) + 1
  }
  const first = all.findIndex((count) => count > 0)
  if (first === -1) return { histogram: [], shortest: 0 }
  const last = all.findLastIndex((count) => count > 0)
  return { histogram: all.slice(first, last + 1), shortest: firstBar * 2 ** first }
}
