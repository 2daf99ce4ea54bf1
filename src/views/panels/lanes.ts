/**
 * Lanes: the attempts of each worker over time. A segment is one attempt of a task and takes 25
 * bytes, 2 more in coarser levels, and 4 more if the numbers of later attempts are recorded. The
 * latest segment of each task takes 4 bytes.
 */

import {
  addToValue,
  blockRows,
  type Column,
  createColumn,
  createTextIndex,
  dropRows,
} from '../columns.ts'
import { findText, indexOf, setValue, textAt, type TextIndex, valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import { numberOf, type Panel, resumption, type TaskStep, textOf } from '../panel.ts'
import { missedSeconds, type ViewEvent } from '../panel.ts'
import { addToLevels, type LaneCell, type LaneLevel, cellsIn, createLevels } from './lane-levels.ts'

/**
 * The outcome of an attempt. `retried`: it failed and another attempt followed. `lost`: it has no
 * terminal event. `repeated`: a later session reported the same attempt again; not shown.
 */
export const outcomes = [
  'running',
  'completed',
  'failed',
  'canceled',
  'retried',
  'lost',
  'repeated',
] as const
export type Outcome = (typeof outcomes)[number]

export const outcomeNumbers = Object.fromEntries(
  outcomes.map((outcome, number) => [outcome, number]),
) as Readonly<Record<Outcome, number>>
const { running, completed, failed, canceled, retried, lost, repeated } = outcomeNumbers
/** The outcomes of attempts without a result. */
export const failedOutcomes: ReadonlySet<number> = new Set([failed, retried, lost])

export interface LanesState {
  readonly lanes: TextIndex
  /** The backend and node of each node number, as a JSON pair. */
  readonly nodes: TextIndex
  /** The following columns have one row per lane. */
  readonly nodeOfLane: Column
  readonly segmentsOfLane: Column
  readonly failedOfLane: Column
  readonly busyOfLane: Column
  /**
   * Segments in the order in which their starts were recorded; rows before `first` were dropped.
   */
  size: number
  first: number
  /** The maximum number of segments; the oldest are then dropped, except in coarser levels. */
  readonly maxSegments: number
  dropped: number
  /** The latest time at which a dropped segment ended. */
  droppedUntil: number
  readonly task: Column
  readonly start: Column
  /** The duration in seconds; not set while the attempt is running. */
  readonly seconds: Column
  /** Seconds from a failed attempt until the next one may begin. */
  readonly retryDelay: Column
  /** The recorded number of the attempt; 0 for the first. */
  readonly attempt: Column
  readonly lane: Column
  readonly outcome: Column
  /** For each task, its latest segment plus 1. */
  readonly latestOfTask: Column
  tasks: number
  readonly levels: readonly LaneLevel[]
  /** The latest time of any event. */
  lastTime: number
  /** Whether the run had an earlier session. */
  isResumed: boolean
  /** The lost segment of each task that was running when the previous session was killed. */
  readonly lostOfTask: Map<number, number>
}

export interface LaneView {
  readonly id: string
  readonly backend: string
  readonly nodeId: string
  /** The number of attempts, including running ones. */
  readonly segments: number
  readonly failed: number
  /** Seconds of attempts that have ended. */
  readonly busySeconds: number
}

export interface SegmentView {
  /** `lane` is an index into `lanes`; `task` is the task's number in the pass. */
  readonly lane: number
  readonly task: number
  readonly start: number
  /** For a running attempt: `now` of the query, or the latest time of any event. */
  readonly end: number
  readonly outcome: Outcome
  /** The recorded number; a resumed session may continue counting. */
  readonly attempt: number
}

export interface LanesQuery {
  /** A part of the run, in wall-clock seconds. Default: the whole run. */
  readonly from?: number
  readonly to?: number
  /** The maximum number of segments or cells. */
  readonly limit: number
  /** The time at which running attempts are assumed to end. Default: the latest event time. */
  readonly now?: number
}

export interface LanesView {
  readonly lanes: readonly LaneView[]
  /** 0: single attempts in `segments`. Above 0: each cell in `cells` sums up 16 ** `level`. */
  readonly level: number
  readonly segments: readonly SegmentView[]
  readonly cells: readonly LaneCell[]
  /** The number of attempts that exist only in coarser levels, because there were too many. */
  readonly onlyCoarse: number
  /** Whether even the coarsest level has more cells than `limit`. */
  readonly isCut: boolean
}

/** Workers beyond this number share one lane. */
const maxLanes = 20_000
const otherLanes = 'other workers'

export const lanes: Panel<LanesState, LanesQuery, LanesView> = {
  create: () => ({
    lanes: createTextIndex(),
    nodes: createTextIndex(),
    nodeOfLane: createColumn('u32'),
    segmentsOfLane: createColumn('u32'),
    failedOfLane: createColumn('u32'),
    busyOfLane: createColumn('f64'),
    size: 0,
    first: 0,
    maxSegments: 5_000_000,
    dropped: 0,
    droppedUntil: -Infinity,
    task: createColumn('u32'),
    start: createColumn('f64'),
    seconds: createColumn('f32'),
    retryDelay: createColumn('f32'),
    attempt: createColumn('u32'),
    lane: createColumn('u32'),
    outcome: createColumn('u8'),
    latestOfTask: createColumn('u32'),
    tasks: 0,
    levels: createLevels(),
    lastTime: 0,
    isResumed: false,
    lostOfTask: new Map(),
  }),

  take(state, event, step) {
    if (step === resumption) {
      loseRunning(state)
      state.isResumed = true
    }
    if (event.event_time > state.lastTime) state.lastTime = event.event_time
    if (step.task === -1) return
    if (step.stage === 0) followAttempts(state, event, step)
    else if (step.after !== step.before) followStages(state, event, step)
  },

  show(state, query) {
    const { from = -Infinity, to = Infinity, limit } = query
    const common = { lanes: laneViews(state), onlyCoarse: state.dropped, isCut: false }
    const segments = segmentsIn(state, query)
    if (segments !== null) return { ...common, level: 0, segments, cells: [] }
    for (const [at, level] of state.levels.entries()) {
      const cells = cellsIn(level, from, to, limit)
      if (cells !== null) return { ...common, level: at + 1, segments: [], cells }
    }
    return { ...common, level: state.levels.length, segments: [], cells: [], isCut: true }
  },
}

function followStages(state: LanesState, event: ViewEvent, step: TaskStep): void {
  const { task, stage, after } = step
  if (stage === stages.started) begin(state, event, task, event.attributes['worker_id'])
  else if (hasEnded(after)) {
    if (state.isResumed) moveStart(state, event, task)
    end(state, event.event_time, task, outcomeOf(stage))
    if (state.isResumed) joinLost(state, task)
  }
}

function moveStart(state: LanesState, event: ViewEvent, task: number): void {
  const segment = runningSegment(state, task)
  if (segment === -1) return
  const start = valueAt(state.start, segment)
  const missed = missedSeconds(event, start)
  if (missed > 0) setValue(state.start, segment, start - missed)
  else state.lostOfTask.delete(task)
}

/** Joins two reports of one attempt that continued after its session was killed. */
function joinLost(state: LanesState, task: number): void {
  const lostSegment = state.lostOfTask.get(task) ?? -1
  state.lostOfTask.delete(task)
  if (lostSegment < state.first) return
  const segment = valueAt(state.latestOfTask, task) - 1
  setValue(state.seconds, lostSegment, valueAt(state.seconds, segment))
  setValue(state.outcome, lostSegment, valueAt(state.outcome, segment))
  setValue(state.latestOfTask, task, lostSegment + 1)
  // Do not count the second report of the attempt.
  setValue(state.seconds, segment, 0)
  setValue(state.outcome, segment, repeated)
  addToValue(state.segmentsOfLane, valueAt(state.lane, segment), -1)
  addToValue(state.failedOfLane, valueAt(state.lane, lostSegment), -1)
}

function outcomeOf(stage: number): number {
  if (stage === stages.completed) return completed
  return stage === stages.failed ? failed : canceled
}

function followAttempts(state: LanesState, event: ViewEvent, { task, after }: TaskStep): void {
  if (!hasStarted(after) || hasEnded(after)) return
  if (event.event_type === 'tutti.AttemptStarted') begin(state, event, task, event.worker_id)
  if (event.event_type !== 'tutti.TaskAttempt') return
  const segment = runningSegment(state, task)
  if (segment === -1) return
  end(state, event.event_time, task, retried)
  const retryAt = numberOf(event.retry_at) ?? event.event_time
  setValue(state.retryDelay, segment, Math.max(0, retryAt - event.event_time))
}

/** A retry is reported twice if the first attempt never began; both reports make one segment. */
function begin(state: LanesState, event: ViewEvent, task: number, workerId: unknown): void {
  if (runningSegment(state, task) !== -1) return
  const lane = laneOf(state, event, workerId)
  addToValue(state.segmentsOfLane, lane, 1)
  const attempt = numberOf(event.attempt ?? event.attributes['attempt']) ?? 1
  if (attempt > 1) setValue(state.attempt, state.size, attempt)
  addRunning(state, { task, lane, start: event.event_time })
  if (state.size - state.first > state.maxSegments) dropOldest(state)
}

function addRunning(
  state: LanesState,
  { task, lane, start }: { task: number; lane: number; start: number },
): void {
  const segment = state.size++
  setValue(state.task, segment, task)
  setValue(state.start, segment, start)
  setValue(state.seconds, segment, 0)
  setValue(state.retryDelay, segment, 0)
  setValue(state.lane, segment, lane)
  setValue(state.outcome, segment, running)
  setValue(state.latestOfTask, task, segment + 1)
  state.tasks = Math.max(state.tasks, task + 1)
}

function end(state: LanesState, time: number, task: number, outcome: number): void {
  const segment = runningSegment(state, task)
  if (segment === -1) return
  const start = valueAt(state.start, segment)
  const lane = valueAt(state.lane, segment)
  const ended = Math.max(start, time)
  setValue(state.seconds, segment, ended - start)
  setValue(state.outcome, segment, outcome)
  addToValue(state.busyOfLane, lane, ended - start)
  const isFailed = failedOutcomes.has(outcome)
  if (isFailed) addToValue(state.failedOfLane, lane, 1)
  addToLevels(state.levels, { lane, start, end: ended, isFailed })
}

/** The running segment of the task; -1 if there is none. */
function runningSegment(state: LanesState, task: number): number {
  const segment = valueAt(state.latestOfTask, task) - 1
  return segment >= state.first && valueAt(state.outcome, segment) === running ? segment : -1
}

/** Ends the attempts of a killed session at the time of its last event. */
function loseRunning(state: LanesState): void {
  state.lostOfTask.clear()
  for (let task = 0; task < state.tasks; task++) {
    const segment = runningSegment(state, task)
    if (segment === -1) continue
    state.lostOfTask.set(task, segment)
    end(state, state.lastTime, task, lost)
  }
}

/** Frees a block of rows. Running attempts are copied to newer rows. */
function dropOldest(state: LanesState): void {
  const first = state.first + blockRows
  for (let segment = state.first; segment < first; segment++) {
    const view = segmentAt(state, segment)
    if (view.outcome === 'running') addRunning(state, view)
    else {
      state.dropped++
      state.droppedUntil = Math.max(state.droppedUntil, view.end)
    }
  }
  const { task, start, seconds, retryDelay, attempt, lane, outcome } = state
  for (const column of [task, start, seconds, retryDelay, attempt, lane, outcome]) {
    dropRows(column, first)
  }
  state.first = first
}

function laneOf(state: LanesState, event: ViewEvent, workerId: unknown): number {
  const { backend, node_id } = event
  const known = state.lanes.size
  const id = textOf(workerId) || (node_id ?? backend)
  const isLumped = known >= maxLanes && findText(state.lanes, id) === -1
  const lane = indexOf(state.lanes, isLumped ? otherLanes : id)
  if (lane === known) {
    const node = indexOf(state.nodes, JSON.stringify([backend, textOf(node_id)]))
    setValue(state.nodeOfLane, lane, node)
  }
  return lane
}

function laneViews(state: LanesState): LaneView[] {
  return Array.from({ length: state.lanes.size }, (_, lane) => {
    const node = textAt(state.nodes, valueAt(state.nodeOfLane, lane))
    const [backend = '', nodeId = ''] = JSON.parse(node) as string[]
    return {
      id: textAt(state.lanes, lane),
      backend,
      nodeId,
      segments: valueAt(state.segmentsOfLane, lane),
      failed: valueAt(state.failedOfLane, lane),
      busySeconds: valueAt(state.busyOfLane, lane),
    }
  })
}

/** The segments in the range; `null` if there are more than `limit`, or some were dropped. */
function segmentsIn(
  state: LanesState,
  { from = -Infinity, to = Infinity, limit, now }: LanesQuery,
): SegmentView[] | null {
  if (state.dropped > 0 && from <= state.droppedUntil) return null
  const found: SegmentView[] = []
  for (let segment = state.first; segment < state.size; segment++) {
    const view = segmentAt(state, segment, now)
    if (view.start > to || view.end < from || view.outcome === 'repeated') continue
    if (found.length === limit) return null
    found.push(view)
  }
  return found
}

/** Returns the attempt in a row that was not dropped. A running attempt ends at `now`. */
export function segmentAt(state: LanesState, segment: number, now = state.lastTime): SegmentView {
  const start = valueAt(state.start, segment)
  const outcome = valueAt(state.outcome, segment)
  const isRunning = outcome === running
  return {
    lane: valueAt(state.lane, segment),
    task: valueAt(state.task, segment),
    start,
    end: isRunning ? Math.max(start, now) : start + valueAt(state.seconds, segment),
    outcome: outcomes[outcome] ?? 'lost',
    attempt: Math.max(1, valueAt(state.attempt, segment)),
  }
}
