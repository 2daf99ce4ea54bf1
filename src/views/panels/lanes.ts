/**
 * Lanes: the attempts of each worker over time. A segment is one attempt of a task. It takes 25
 * bytes, and 4 more if the numbers of later attempts are recorded. The latest segment of each task
 * takes 4 bytes.
 */

import { createColumn, createTextIndex, findText, indexOf } from '../columns.ts'
import { setValue, textAt, valueAt } from '../columns.ts'
import { hasEnded, hasStarted, stages } from '../lifecycle.ts'
import { numberOf, type Panel, resumption, type TaskStep, textOf } from '../panel.ts'
import { secondsBeforeStart, type ViewEvent } from '../panel.ts'

/**
 * The outcome of an attempt. `retried` means that it failed and another attempt followed, and
 * `lost` that it has no terminal event. `repeated` means that a later session reported the same
 * attempt again; it is not shown.
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
/** Whether an attempt with this outcome failed or was lost. */
export const isFailedOutcome = (outcome: number): boolean =>
  outcome === failed || outcome === retried || outcome === lost

const createLanes = () => ({
  lanes: createTextIndex(),
  /** The backend and the id of each node, as a JSON pair, by node number. */
  nodes: createTextIndex(),
  nodeOfLane: createColumn('u32'),
  /** The number of segments, which are in the order in which their starts were recorded. */
  size: 0,
  task: createColumn('u32'),
  start: createColumn('f64'),
  /** The duration in seconds; 0 while the attempt is running. */
  seconds: createColumn('f32'),
  /** Seconds from the end of a failed attempt until the next attempt may begin. */
  retryDelay: createColumn('f32'),
  /** The recorded number of the attempt; 0 for the first attempt. */
  attempt: createColumn('u32'),
  lane: createColumn('u32'),
  outcome: createColumn('u8'),
  /** For each task, the number of its latest segment plus 1. */
  latestOfTask: createColumn('u32'),
  tasks: 0,
  lastTime: 0,
  isResumed: false,
  /** The lost segment of each task that was running when the previous session was killed. */
  lostOfTask: new Map<number, number>(),
})

export type LanesState = ReturnType<typeof createLanes>

export interface LaneId {
  readonly id: string
  readonly backend: string
  readonly nodeId: string
}

export interface LaneView extends LaneId {
  readonly segments: number
  readonly failed: number
}

export interface SegmentView {
  readonly lane: number
  readonly task: number
  readonly start: number
  /** For a running attempt, `now` of the query, or the latest time of any event. */
  readonly end: number
  readonly outcome: Outcome
  /** The recorded number of the attempt. A resumed session may continue counting. */
  readonly attempt: number
  /** Seconds from the end of a failed attempt until the next attempt may begin. */
  readonly retryDelay: number
}

/** Consecutive attempts of a lane, combined into one block. */
export interface LaneCell {
  readonly lane: number
  readonly start: number
  readonly end: number
  readonly busySeconds: number
  readonly segments: number
  readonly failed: number
}

export interface LanesQuery {
  readonly limit: number
  /** The time at which running attempts are assumed to end. Default: the latest event time. */
  readonly now?: number
}

export interface LanesView {
  readonly lanes: readonly LaneView[]
  /**
   * The level of detail. At level 0, `segments` contains single attempts. At higher levels, each
   * cell in `cells` combines 16 ** `level` attempts.
   */
  readonly level: number
  readonly segments: readonly SegmentView[]
  /** Empty if even the coarsest level has more cells than `limit`. */
  readonly cells: readonly LaneCell[]
}

/** The maximum number of lanes. Further workers share one lane. */
const maxLanes = 20_000
const otherLanes = 'other workers'

export const lanes: Panel<LanesState, LanesQuery, LanesView> = {
  create: createLanes,

  take(state, event, step) {
    if (step === resumption) {
      endRunningAsLost(state)
      state.isResumed = true
    }
    if (event.event_time > state.lastTime) state.lastTime = event.event_time
    if (step.task === -1) return
    if (step.stage === 0) recordAttempt(state, event, step)
    else if (step.after !== step.before) recordStage(state, event, step)
  },

  show(state, query) {
    const all = { lanes: toLaneViews(state), segments: [], cells: [] }
    const segments = listSegments(state, query)
    if (segments !== null) return { ...all, level: 0, segments }
    for (let level = 1; level <= maxLevel; level++) {
      const cells = combineSegments(state, query.limit, perCell ** level)
      if (cells !== null) return { ...all, level, cells }
    }
    return { ...all, level: maxLevel }
  },
}

const perCell = 16
const maxLevel = 6

function recordStage(state: LanesState, event: ViewEvent, step: TaskStep): void {
  const { task, stage, after } = step
  if (stage === stages.started) beginAttempt(state, event, task, event.attributes['worker_id'])
  else if (hasEnded(after)) {
    if (state.isResumed) moveStart(state, event, task)
    endAttempt(state, event.event_time, task, outcomeOf(stage))
    if (state.isResumed) mergeLostSegment(state, task)
  }
}

function moveStart(state: LanesState, event: ViewEvent, task: number): void {
  const segment = runningSegment(state, task)
  if (segment === -1) return
  const start = valueAt(state.start, segment)
  const missed = secondsBeforeStart(event, start)
  if (missed > 0) setValue(state.start, segment, start - missed)
  else state.lostOfTask.delete(task)
}

/** Joins two reports of the same attempt, which continued after its session was killed. */
function mergeLostSegment(state: LanesState, task: number): void {
  const lostSegment = state.lostOfTask.get(task) ?? -1
  state.lostOfTask.delete(task)
  if (lostSegment === -1) return
  const segment = valueAt(state.latestOfTask, task) - 1
  setValue(state.seconds, lostSegment, valueAt(state.seconds, segment))
  setValue(state.outcome, lostSegment, valueAt(state.outcome, segment))
  setValue(state.latestOfTask, task, lostSegment + 1)
  // Otherwise, the attempt would be counted twice.
  setValue(state.seconds, segment, 0)
  setValue(state.outcome, segment, repeated)
}

function outcomeOf(stage: number): number {
  if (stage === stages.completed) return completed
  return stage === stages.failed ? failed : canceled
}

function recordAttempt(state: LanesState, event: ViewEvent, { task, after }: TaskStep): void {
  if (!hasStarted(after) || hasEnded(after)) return
  if (event.event_type === 'tutti.AttemptStarted') beginAttempt(state, event, task, event.worker_id)
  if (event.event_type !== 'tutti.TaskAttempt') return
  const segment = runningSegment(state, task)
  if (segment === -1) return
  endAttempt(state, event.event_time, task, retried)
  const retryAt = numberOf(event.retry_at) ?? event.event_time
  setValue(state.retryDelay, segment, Math.max(0, retryAt - event.event_time))
}

/** Ignores a second report: a retry is reported twice if the first attempt never began. */
function beginAttempt(state: LanesState, event: ViewEvent, task: number, workerId: unknown): void {
  if (runningSegment(state, task) !== -1) return
  const lane = findOrAddLane(state, event, workerId)
  const attempt = numberOf(event.attempt ?? event.attributes['attempt']) ?? 1
  if (attempt > 1) setValue(state.attempt, state.size, attempt)
  const segment = state.size++
  setValue(state.task, segment, task)
  setValue(state.start, segment, event.event_time)
  setValue(state.seconds, segment, 0)
  setValue(state.retryDelay, segment, 0)
  setValue(state.lane, segment, lane)
  setValue(state.outcome, segment, running)
  setValue(state.latestOfTask, task, segment + 1)
  state.tasks = Math.max(state.tasks, task + 1)
}

function endAttempt(state: LanesState, time: number, task: number, outcome: number): void {
  const segment = runningSegment(state, task)
  if (segment === -1) return
  const start = valueAt(state.start, segment)
  setValue(state.seconds, segment, Math.max(0, time - start))
  setValue(state.outcome, segment, outcome)
}

function runningSegment(state: LanesState, task: number): number {
  const segment = valueAt(state.latestOfTask, task) - 1
  return segment !== -1 && valueAt(state.outcome, segment) === running ? segment : -1
}

function endRunningAsLost(state: LanesState): void {
  state.lostOfTask.clear()
  for (let task = 0; task < state.tasks; task++) {
    const segment = runningSegment(state, task)
    if (segment === -1) continue
    state.lostOfTask.set(task, segment)
    endAttempt(state, state.lastTime, task, lost)
  }
}

function findOrAddLane(state: LanesState, event: ViewEvent, workerId: unknown): number {
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

/** Returns the lanes by number. */
export const listLanes = (state: LanesState): LaneId[] =>
  Array.from({ length: state.lanes.size }, (_, lane) => {
    const node = textAt(state.nodes, valueAt(state.nodeOfLane, lane))
    const [backend = '', nodeId = ''] = JSON.parse(node) as string[]
    return { id: textAt(state.lanes, lane), backend, nodeId }
  })

function toLaneViews(state: LanesState): LaneView[] {
  const views = listLanes(state).map((lane) => ({ ...lane, segments: 0, failed: 0 }))
  for (let segment = 0; segment < state.size; segment++) {
    const outcome = valueAt(state.outcome, segment)
    const view = views[valueAt(state.lane, segment)]
    if (view === undefined || outcome === repeated) continue
    view.segments++
    if (isFailedOutcome(outcome)) view.failed++
  }
  return views
}

/** Returns all attempts, or `null` if there are more than `limit`. */
function listSegments(state: LanesState, { limit, now }: LanesQuery): SegmentView[] | null {
  const found: SegmentView[] = []
  for (let segment = 0; segment < state.size; segment++) {
    const view = segmentAt(state, segment, now)
    if (view.outcome === 'repeated') continue
    if (found.length === limit) return null
    found.push(view)
  }
  return found
}

type OpenCell = { -readonly [Key in keyof LaneCell]: LaneCell[Key] }

/**
 * Combines the ended attempts of each lane into cells of up to `size` consecutive attempts. Returns
 * `null` if there are more than `limit` cells.
 */
function combineSegments(state: LanesState, limit: number, size: number): LaneCell[] | null {
  const cells: LaneCell[] = []
  const open = new Map<number, OpenCell>()
  for (let segment = 0; segment < state.size; segment++) {
    const outcome = valueAt(state.outcome, segment)
    const start = valueAt(state.start, segment)
    const seconds = valueAt(state.seconds, segment)
    const end = start + seconds
    if (outcome === running || outcome === repeated) continue
    const lane = valueAt(state.lane, segment)
    let cell = open.get(lane)
    if (cell === undefined || cell.segments === size) {
      if (cells.length === limit) return null
      cell = { lane, start, end, busySeconds: 0, segments: 0, failed: 0 }
      cells.push(cell)
      open.set(lane, cell)
    }
    cell.start = Math.min(cell.start, start)
    cell.end = Math.max(cell.end, end)
    cell.busySeconds += seconds
    cell.segments++
    if (isFailedOutcome(outcome)) cell.failed++
  }
  return cells
}

/** Returns the attempt with this number. A running attempt is assumed to end at `now`. */
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
    retryDelay: valueAt(state.retryDelay, segment),
  }
}
