/**
 * A run in numbers, with sentences about its bounds, from the views alone. Used by reports,
 * comparisons and live readers. Pure.
 */

import type { RunPass } from '../all-panels.ts'
import { activeTime } from '../bounds/bounds-state.ts'
import { bounds, type BoundsView } from '../bounds/bounds.ts'
import { type NameTimes, noTimes, timesByName } from '../bounds/name-times.ts'
import { storyOf } from '../bounds/task-times.ts'
import { textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { counts, type CountsView, stagesOf } from '../panels/counts.ts'
import { health, type HealthView } from '../panels/health.ts'
import { allReused, durationsByName, names, type NameView } from '../panels/names.ts'
import { type NodeSummary, showNodes } from '../panels/resources.ts'
import { type RecordState, run, runSeconds, type RunState } from '../panels/run.ts'
import { type DurationStats, statsInPlace } from '../stats.ts'
import { uidOf } from '../task-index.ts'
import { type BoundWords, describeBounds } from './bound-words.ts'

export interface NameReport extends NameView, NameTimes {
  /** Mean seconds from being ready to the start; `null` if no task started. */
  readonly meanWait: number | null
  /** The mean duration of tasks that finished. */
  readonly meanRun: number | null
  /** Durations of tasks that ran and are done; `null` if there are none. */
  readonly done: DurationStats | null
  /** Tasks by duration; each bar covers twice the range of the previous one, from `shortest` on. */
  readonly histogram: readonly number[]
  readonly shortest: number
}

export interface RunOverview {
  readonly state: RecordState
  readonly run: Readonly<RunState>
  /** See `runSeconds`. */
  readonly durationSeconds: number
  readonly counts: CountsView
  /** Completed tasks that did not run, because the result already existed. */
  readonly reused: number
  readonly names: readonly NameReport[]
  readonly otherNames: number
  readonly nodes: readonly NodeSummary[]
  /** The mean CPU utilization of the nodes; `null` if not measured. */
  readonly cpuPercent: number | null
  /** The part of `cpuPercent` used by the run itself; `null` if not measured. */
  readonly runCpuPercent: number | null
  readonly health: HealthView
  readonly bounds: BoundsView
  readonly words: BoundWords
  /** The uids of the tasks in the bounds and the timeline. */
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
}

const maxNames = 40
/** The bars of a histogram double from a microsecond to a week; only the used range is kept. */
const firstBar = 1e-6
const bars = 40

/** `now` is the current time for a running session, otherwise the time of its latest event. */
export function overviewOf(pass: RunPass, state: RecordState, now: number): RunOverview {
  const { states } = pass
  const latestUid = (task: number): string => uidOf(pass.counts.index, task)
  const nameOf = (task: number): string =>
    textAt(states.names.names, valueAt(states.names.nameOfTask, task))
  const nodes = showNodes(states.resources)
  const boundsView = bounds.show(states.bounds, { counts: pass.counts, ...states, now })
  const counted = counts.show(pass.counts)
  const healthView = health.show(states.health)
  const reported = nameReports(pass, now)
  const cpu = {
    cpuPercent: meanCpuPercent(nodes, 'cpu_percent'),
    runCpuPercent: runCpuPercent(nodes, boundsView, states.run.taskCpuSeconds),
  }
  return {
    state,
    run: run.show(states.run),
    durationSeconds: runSeconds(states.run, states.bounds.attended, now),
    counts: counted,
    reused: allReused(states.names),
    names: reported.slice(0, maxNames),
    otherNames: Math.max(0, reported.length - maxNames),
    nodes,
    ...cpu,
    health: healthView,
    bounds: boundsView,
    words: describeBounds(boundsView, {
      uidOf: latestUid,
      nameOf,
      clockStep: healthView.clockStep,
      state,
      openTasks: counted.open,
      tasks: counted.tasks,
      ...cpu,
      replacedWorkers: replacedWorkersOf(pass),
    }),
    uidOf: latestUid,
    nameOf,
  }
}

/** The mean over all nodes; `null` if not measured. */
function meanCpuPercent(
  nodes: readonly NodeSummary[],
  reading: 'cpu_percent' | 'run_cpu_percent',
): number | null {
  const means = nodes.flatMap(({ [reading]: { mean } }) => (mean === null ? [] : [mean]))
  return means.length === 0 ? null : means.reduce((sum, one) => sum + one, 0) / means.length
}

/** At least the usage of its programs, which may not be descendants of the measuring process. */
function runCpuPercent(
  nodes: readonly NodeSummary[],
  { slots, seconds }: BoundsView,
  taskCpuSeconds: number,
): number | null {
  const measured = meanCpuPercent(nodes, 'run_cpu_percent')
  const ofTasks = (100 * taskCpuSeconds) / Math.max(1e-9, slots * seconds)
  return measured === null ? null : Math.max(measured, Math.min(100, ofTasks))
}

/** Workers are numbered; numbers beyond the size of the pool are replacements. */
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

/** Sorted by total running time, longest first. */
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
