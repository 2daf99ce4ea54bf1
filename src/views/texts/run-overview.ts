/**
 * A run in numbers, with sentences about its bounds, its end and the cost of its telemetry,
 * computed only from the views. Used by reports, comparisons and live readers. Pure.
 */

import type { RunPass } from '../all-panels.ts'
import { activeTime } from '../bounds/bounds-state.ts'
import { bounds, type BoundsView } from '../bounds/bounds.ts'
import { type NameSeconds, noSeconds, sumSecondsByName } from '../bounds/name-times.ts'
import { readStageTimes } from '../bounds/task-times.ts'
import { textAt, valueAt } from '../columns.ts'
import { stages } from '../lifecycle.ts'
import { counts, type CountsView, stagesOf } from '../panels/counts.ts'
import { health, type HealthView } from '../panels/health.ts'
import { countReused, durationsByName, names, type NameView } from '../panels/names.ts'
import { type NodeSummary, showNodes } from '../panels/resources.ts'
import { type RecordState, run, runSeconds, type RunState } from '../panels/run.ts'
import type { TelemetryCost } from '../panels/run.ts'
import { countText, listCounts, numberText, secondsText } from '../readable.ts'
import { type DurationStats, statsOrNull } from '../stats.ts'
import { uidOf } from '../task-index.ts'
import { type BoundText, describeBounds } from './bound-text.ts'

export interface NameReport extends NameView, NameSeconds {
  /** The number of the name's colour, in the order in which the names appeared. */
  readonly colour: number
  readonly meanWait: number | null
  readonly meanRun: number | null
  /** Statistics of the durations of tasks that ran and are done; `null` if there are none. */
  readonly done: DurationStats | null
  /** The number of tasks per bar. Each bar covers twice the range of the previous bar. */
  readonly histogram: readonly number[]
  readonly shortest: number
}

export interface RunOverview {
  readonly state: RecordState
  readonly run: Readonly<RunState>
  readonly durationSeconds: number
  readonly counts: CountsView
  readonly reused: number
  readonly names: readonly NameReport[]
  readonly otherNames: number
  readonly nodes: readonly NodeSummary[]
  readonly cpuPercent: number | null
  /** The part of `cpuPercent` that the run itself used; `null` if it was not measured. */
  readonly runCpuPercent: number | null
  readonly health: HealthView
  readonly bounds: BoundsView
  readonly boundText: BoundText
  readonly uidOf: (task: number) => string
  readonly nameOf: (task: number) => string
}

const maxNames = 40
/**
 * The first bar of a histogram is a microsecond long, and each bar is twice as long as the one
 * before, up to a week. Only the used range is kept.
 */
const firstBar = 1e-6
const bars = 40

/**
 * Creates the overview. `now` is the current time for a running session, and otherwise the time of
 * its latest event.
 */
export function createOverview(pass: RunPass, state: RecordState, now: number): RunOverview {
  const { states } = pass
  const reported = createNameReports(pass, now)
  return {
    ...createBoundsOverview(pass, state, now),
    run: run.show(states.run),
    durationSeconds: runSeconds(states.run, states.bounds.attended, now),
    reused: countReused(states.names),
    names: reported.slice(0, maxNames),
    otherNames: Math.max(0, reported.length - maxNames),
  }
}

type BoundsOverview = Omit<
  RunOverview,
  'run' | 'durationSeconds' | 'reused' | 'names' | 'otherNames'
>

/** The part of the overview about what limited the run. */
export function createBoundsOverview(
  pass: RunPass,
  state: RecordState,
  now: number,
): BoundsOverview {
  const { states } = pass
  const latestUid = (task: number): string => uidOf(pass.counts.index, task)
  const nameOf = (task: number): string =>
    textAt(states.names.names, valueAt(states.names.nameOfTask, task))
  const nodes = showNodes(states.resources)
  const boundsView = bounds.show(states.bounds, { counts: pass.counts, ...states, now })
  const totals = counts.show(pass.counts)
  const healthView = health.show(states.health)
  const cpu = {
    cpuPercent: meanCpuPercent(nodes, 'cpu_percent'),
    runCpuPercent: runCpuPercent(nodes, boundsView, states.run.taskCpuSeconds),
  }
  return {
    state,
    counts: totals,
    nodes,
    ...cpu,
    health: healthView,
    bounds: boundsView,
    boundText: describeBounds(boundsView, {
      uidOf: latestUid,
      nameOf,
      clockStep: healthView.clockStep,
      state,
      openTasks: totals.open,
      tasks: totals.tasks,
      ...cpu,
      replacedWorkers: countReplacedWorkers(pass),
    }),
    uidOf: latestUid,
    nameOf,
  }
}

function meanCpuPercent(
  nodes: readonly NodeSummary[],
  reading: 'cpu_percent' | 'run_cpu_percent',
): number | null {
  const means = nodes.flatMap(({ [reading]: { mean } }) => (mean === null ? [] : [mean]))
  return means.length === 0 ? null : means.reduce((sum, one) => sum + one, 0) / means.length
}

/**
 * Returns the CPU utilization that the run caused. It is at least that of the programs, which may
 * not be descendants of the measuring process.
 */
function runCpuPercent(
  nodes: readonly NodeSummary[],
  { slots, seconds }: BoundsView,
  taskCpuSeconds: number,
): number | null {
  const measuredPercent = meanCpuPercent(nodes, 'run_cpu_percent')
  const taskPercent = (100 * taskCpuSeconds) / Math.max(1e-9, slots * seconds)
  return measuredPercent === null ? null : Math.max(measuredPercent, Math.min(100, taskPercent))
}

/** A worker whose number is beyond the size of the pool is a replacement. */
function countReplacedWorkers({ states }: RunPass): number {
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

/** Returns the names, sorted by total running time, longest first. */
function createNameReports(pass: RunPass, now: number): NameReport[] {
  const { states } = pass
  const waits = sumWaitsByName(pass)
  const times = sumSecondsByName({ counts: pass.counts, ...states }, now)
  const durations = durationsByName(states.names)
  const isDone = (task: number): boolean => (stagesOf(pass.counts, task) & stages.completed) !== 0
  const doneDurations = durationsByName(states.names, isDone)
  const shown = names.show(states.names, { durations: true })
  const numberOf = new Map<string, number>()
  for (let name = 0; name < states.names.names.size; name++) {
    numberOf.set(textAt(states.names.names, name), name)
  }
  return shown
    .map((view, colour) => {
      const number = numberOf.get(view.name) ?? 0
      const { count, seconds } = waits[number] ?? { count: 0, seconds: 0 }
      const meanWait = count === 0 ? null : seconds / count
      const meanRun = view.duration?.mean ?? null
      return {
        ...view,
        colour,
        ...(times[number] ?? noSeconds),
        meanWait,
        meanRun,
        done: statsOrNull(doneDurations[number]),
        ...buildHistogram(durations[number] ?? new Float64Array(0)),
      }
    })
    .toSorted((a, b) => b.ranSeconds - a.ranSeconds || b.total - a.total)
}

function sumWaitsByName({
  counts: counted,
  states,
}: RunPass): { count: number; seconds: number }[] {
  const sums = Array.from({ length: states.names.names.size }, () => ({ count: 0, seconds: 0 }))
  for (let task = 0; task < states.names.tasks; task++) {
    const { ready, started } = readStageTimes(states.bounds.times, task, stagesOf(counted, task))
    const sum = sums[valueAt(states.names.nameOfTask, task)]
    if (sum === undefined || ready === null || started === null) continue
    sum.count++
    const { pauses } = states.bounds
    sum.seconds += Math.max(0, activeTime(pauses, started) - activeTime(pauses, ready))
  }
  return sums
}

function buildHistogram(durations: Float64Array): Pick<NameReport, 'histogram' | 'shortest'> {
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

export type Severity = 'good' | 'warning' | 'bad'

interface ReportVerdict {
  readonly severity: Severity
  readonly sentence: string
}

/** The numbers from which `describeRun` makes a sentence. */
type RunNumbers = Pick<
  RunOverview,
  'counts' | 'run' | 'health' | 'state' | 'durationSeconds' | 'reused'
>

export function describeRun(data: RunNumbers): ReportVerdict {
  const { state } = data
  const { events, tasks, completed, failed, canceled, open } = data.counts
  const seconds = secondsText(data.durationSeconds)
  if (events === 0) {
    return {
      severity: 'bad',
      sentence: 'The record has no event: nothing is known about this run.',
    }
  }
  const losses = listCounts([
    [data.reused, 'result reused', 'results reused'],
    [data.run.workersLost, 'worker lost', 'workers lost'],
    [data.health.nodesLost, 'node lost', 'nodes lost'],
    [data.run.retries, 'further attempt', 'further attempts'],
  ])
  const beside = losses.length === 0 ? '' : ` (${losses.join(', ')})`
  const [done, all] = [numberText(completed), countText(tasks, 'task')]
  if (state === 'running' || data.run.endTime === null) {
    const isRunning = state === 'running'
    const start = isRunning ? 'The run is in progress' : 'The run has no end'
    const sentence =
      `${start}: after ${seconds}, ${done} of ${all} done, ${numberText(failed)} failed, ` +
      `${numberText(open)} open${beside}.`
    return { severity: !isRunning ? 'warning' : failed > 0 ? 'bad' : 'good', sentence }
  }
  if (tasks === 0)
    return { severity: 'warning', sentence: `The run had no task; it took ${seconds}.` }
  if (failed === 0 && canceled === 0 && open === 0) {
    const whole = tasks === 1 ? 'Its only task' : `All ${all}`
    return { severity: 'good', sentence: `${whole} succeeded in ${seconds}${beside}.` }
  }
  const parts = listCounts([
    [failed, 'failed'],
    [canceled, 'was canceled', 'were canceled'],
    [open, 'has no end', 'have no end'],
  ])
  const sentence = `${done} of ${all} succeeded in ${seconds}; ${parts.join(', ')}${beside}.`
  return { severity: failed > 0 ? 'bad' : 'warning', sentence }
}

export function describeCost(cost: TelemetryCost): string {
  const { main_cpu_seconds: main, thread_cpu_seconds: thread } = cost
  const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`
  const spilled = cost.spill_bytes === 0 ? '' : ` and ${megabytes(cost.spill_bytes)} of spans`
  return (
    `${secondsText(main)} of CPU time in the main thread and ${secondsText(thread)} in its own ` +
    `thread; it waited for ${countText(cost.in_place_writes, 'write')}, ` +
    `and wrote ${megabytes(cost.bytes_written)} of lines${spilled}`
  )
}
