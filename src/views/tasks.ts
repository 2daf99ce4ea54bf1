/**
 * Queries about tasks: lists by state, name or node, and the details of one task. The data come
 * from a pass over all panels.
 */

import type { TaskState } from '../tasks/lifecycle.ts'
import type { RunPass } from './all-panels.ts'
import { activeTime } from './bounds/bounds-state.ts'
import { readStageTimes, type StageTimes } from './bounds/task-times.ts'
import { textAt, type TextIndex, valueAt } from './columns.ts'
import { hasDuration, hasEnded, hasStarted, stages } from './lifecycle.ts'
import { isInterrupted, stagesOf } from './panels/counts.ts'
import { dependenciesOf } from './panels/graph.ts'
import { outcomeNumbers, type SegmentView, segmentAt } from './panels/lanes.ts'
import { type ProgressReport, progressReport } from './panels/names.ts'
import { type Remark, remarks, type TaskMove } from './panels/remarks.ts'
import { clockToleranceSeconds } from './panel.ts'
import { shortName } from './readable.ts'
import { select } from './stats.ts'
import { scopes } from './panels/scopes.ts'
import { findTask, uidOf } from './task-index.ts'
import type { Shortage } from './shortage.ts'
import { type EarlierStarts, earlierStarts, findSlotFreeTime } from './turns.ts'
import { explainWait, findRetryTime } from './waiting.ts'

export interface TaskView {
  readonly task: number
  readonly uid: string
  readonly name: string
  readonly scope: string
  readonly state: TaskState
  readonly isInterrupted: boolean
  /** The worker of the latest attempt; empty before the first attempt. */
  readonly workerId: string
  readonly nodeId: string
  readonly story: StageTimes
  /** Seconds from RUNNING until the task ended, as reported by its events; `null` if unknown. */
  readonly seconds: number | null
  /** The part of `seconds` in which the task ran, which excludes waits between attempts. */
  readonly ran: number | null
  /**
   * Seconds from being ready until the task started. If it has not started, they count until it
   * ended or until now. Excludes the time between two files of the run. `null` before the task is
   * ready.
   */
  readonly waited: number | null
  readonly runningFor: number | null
  readonly progress: ProgressReport | null
  /** The task's group in the panel `failures`; 0 if the task did not fail. */
  readonly failureGroup: number
  /** The error type of a failed task; empty if the task did not fail or has no group. */
  readonly errorType: string
}

/**
 * The time by which tasks are sorted. `ran` is the running time, which for running tasks counts
 * until now, and `waited` is the waiting time.
 */
export type TaskOrder = 'ran' | 'waited'

export interface TasksQuery {
  readonly state?: TaskState
  readonly name?: string
  readonly nodeId?: string
  readonly failureGroup?: number
  /** The order of tasks, longest time first. Default: in order of first appearance. */
  readonly order?: TaskOrder
  readonly limit: number
  /** The time at which open tasks are assumed to end. Default: the time of the latest event. */
  readonly now?: number
}

/** A task with all its attempts, and the reasons why it waits. */
export interface TaskExplanation extends TaskView {
  readonly attempts: readonly AttemptView[]
  /** Dependencies that are not DONE come first, then the others by end time, latest first. */
  readonly dependencies: readonly Dependency[]
  readonly waitsFor: readonly string[]
  /** The number of other waiting tasks that will start before this one. */
  readonly ahead: number
  /** The uids of the first tasks ahead of this one in the queue. */
  readonly firstAhead: readonly string[]
  /** The missing resource; `null` if a slot is available. */
  readonly shortage: Shortage | null
  /** The task ahead in the queue that lacks resources, and so delays the tasks behind it. */
  readonly heldUpBy: { readonly uid: string; readonly shortage: Shortage } | null
  readonly retryAt: number | null
  /** The time at which the task's slot became free; `null` if unknown. */
  readonly workerFree: number | null
  /** Seconds of the task's lifetime in which no session was running. */
  readonly away: number
  readonly earlierStarts: EarlierStarts
  readonly cancelReason: string | null
  readonly reuses: readonly { readonly time: number; readonly source: string }[]
  /** The move of the task from a lost node before it started there; `null` if there was none. */
  readonly moved: TaskMove | null
}

export interface Dependency {
  readonly uid: string
  readonly name: string
  readonly state: TaskState
  readonly ended: number | null
}

export interface AttemptView extends SegmentView {
  /** The duration in the events. It exceeds `end - start` if the start was reported late. */
  readonly seconds: number
  /** The error of the attempt if another attempt follows; otherwise empty. */
  readonly error: string
  readonly isEarlier: boolean
}

/** Returns the tasks that match the query. `total` also counts matching tasks beyond `limit`. */
export function findTasks(
  pass: RunPass,
  query: TasksQuery,
): { readonly tasks: readonly TaskView[]; readonly total: number } {
  const { order, limit, now } = query
  const found: number[] = []
  let total = 0
  for (let task = 0; task < pass.counts.index.names.size; task++) {
    if (!matches(pass, task, query)) continue
    if (total++ < limit || order !== undefined) found.push(task)
  }
  const shown = order === undefined ? found : findLongest(pass, found, order, query)
  return { tasks: shown.map((task) => viewTask(pass, task, now)), total }
}

/** Returns the tasks with the longest times, longest first. Sorts only these. */
function findLongest(
  pass: RunPass,
  tasks: readonly number[],
  order: TaskOrder,
  { limit, now = pass.states.bounds.lastTime }: TasksQuery,
): number[] {
  const lengths = Float64Array.from(tasks, (task) => {
    const story = readStageTimes(pass.states.bounds.times, task, stagesOf(pass.counts, task))
    const { ran, waited } = measureTimes(pass, task, story, now)
    return (order === 'waited' ? waited : (ran ?? runningFor(pass, task, now))) ?? -1
  })
  const sorted = lengths.slice()
  const first = Math.max(0, tasks.length - limit)
  select(sorted, 0, tasks.length - 1, first)
  const shortest = sorted[first] ?? 0
  const [longer, equal]: [number[], number[]] = [[], []]
  for (const [at, length] of lengths.entries()) {
    if (length > shortest) longer.push(at)
    else if (length === shortest && equal.length < limit) equal.push(at)
  }
  longer.sort((a, b) => (lengths[b] ?? 0) - (lengths[a] ?? 0))
  return [...longer, ...equal].slice(0, limit).map((at) => tasks[at] ?? 0)
}

/** Returns all task names, and all nodes that joined or ran an attempt. */
export function listNamesAndNodes({ states: { names, lanes, bounds } }: RunPass): {
  readonly names: readonly string[]
  readonly nodes: readonly string[]
} {
  const textsOf = (index: TextIndex): string[] =>
    Array.from({ length: Math.min(index.size, maxListed) }, (_, row) => textAt(index, row))
  const pairs = textsOf(lanes.nodes).map((pair) => JSON.parse(pair) as string[])
  const joinedNodes = bounds.nodes.map(({ nodeId }) => nodeId)
  const usedNodes = pairs.map(([, nodeId = '']) => nodeId)
  return { names: textsOf(names.names), nodes: [...joinedNodes, ...usedNodes] }
}

const maxListed = 10_000

/**
 * Yields the views of all tasks in order of first appearance. Each view is created only when the
 * caller asks for it.
 */
export function* eachTask(pass: RunPass): Generator<TaskView> {
  for (let task = 0; task < pass.counts.index.names.size; task++) {
    if (stagesOf(pass.counts, task) !== 0) yield viewTask(pass, task)
  }
}

/** Returns a task's details, or `null` if the uid is unknown. For `now`, see `TasksQuery`. */
export function explainTask(
  pass: RunPass,
  uid: string,
  now = pass.states.bounds.lastTime,
): TaskExplanation | null {
  const { counts, states } = pass
  const task = findTask(counts.index, uid)
  if (task === -1 || stagesOf(counts, task) === 0) return null
  const readUid = (one: number): string => uidOf(counts.index, one)
  const { ahead, firstAhead, shortage, heldUpBy } = explainWait(pass, task)
  const view = viewTask(pass, task, now)
  const { remarks: notes, move } = remarks.show(states.remarks, { task, uid: view.uid })
  const attempts = withRecordedSeconds(listAttempts(pass, task, notes, now), view)
  const dependencies = listDependencies(pass, task)
  const starts = earlierStarts(pass, task, view.story)
  const { created, ended } = view.story
  const { pauses } = states.bounds
  const until = ended ?? now
  return {
    ...view,
    attempts,
    dependencies,
    waitsFor: dependencies.flatMap(({ uid: one, ended: end }) => (end === null ? [one] : [])),
    ahead,
    firstAhead: firstAhead.map(readUid),
    shortage,
    heldUpBy:
      heldUpBy === null ? null : { uid: readUid(heldUpBy.task), shortage: heldUpBy.shortage },
    retryAt: findRetryTime(pass, task),
    earlierStarts: starts,
    workerFree: findSlotFreeTime(pass, attempts[0], starts),
    away: until - created - (activeTime(pauses, until) - activeTime(pauses, created)),
    cancelReason: view.state === 'CANCELED' ? (notes.findLast(isCancel)?.text ?? null) : null,
    reuses: notes.flatMap(({ kind, time, text }) =>
      kind === 'reused' ? [{ time, source: text }] : [],
    ),
    moved: move,
  }
}

function listDependencies(pass: RunPass, task: number): Dependency[] {
  const { counts, states } = pass
  const found = dependenciesOf(states.graph, task).map((one) => {
    const passed = stagesOf(counts, one)
    const { ended } = readStageTimes(states.bounds.times, one, passed)
    const state = stateOf(passed)
    return { uid: uidOf(counts.index, one), name: nameOf(pass, one), state, ended }
  })
  const rankOf = ({ state }: Dependency): number => (state === 'DONE' ? 1 : 0)
  return found.toSorted((a, b) => rankOf(a) - rankOf(b) || (b.ended ?? 0) - (a.ended ?? 0))
}

const isCancel = ({ kind }: Remark): boolean => kind === 'canceled'

/** Cheap checks come first, because most tasks do not match. */
function matches(pass: RunPass, task: number, query: TasksQuery): boolean {
  const { counts, states } = pass
  const { state, name, nodeId, failureGroup } = query
  const passed = stagesOf(counts, task)
  if (passed === 0 || (state !== undefined && stateOf(passed) !== state)) return false
  const group = valueAt(states.failures.groupOfTask, task)
  if (failureGroup !== undefined && failureGroup !== group) return false
  if (nodeId !== undefined && locationOf(pass, task).nodeId !== nodeId) return false
  return name === undefined || matchesName(nameOf(pass, task), name)
}

/** Matches the full name, the short name that tables show, and the path of a program. */
const matchesName = (name: string, asked: string): boolean =>
  name === asked || name === shortName(asked) || (name.endsWith(asked) && shortName(name) === asked)

export function viewTask(pass: RunPass, task: number, now = pass.states.bounds.lastTime): TaskView {
  const { counts, states } = pass
  const passed = stagesOf(counts, task)
  const story = readStageTimes(states.bounds.times, task, passed)
  const failureGroup = valueAt(states.failures.groupOfTask, task)
  return {
    task,
    uid: uidOf(counts.index, task),
    name: nameOf(pass, task),
    scope: scopes.show(states.scopes, { task }),
    state: stateOf(passed),
    isInterrupted: isInterrupted(counts, task) && !hasEnded(passed),
    ...locationOf(pass, task),
    story,
    ...measureTimes(pass, task, story, now),
    runningFor: runningFor(pass, task, now),
    progress: progressReport(states.names, task),
    failureGroup,
    errorType: states.failures.groups[failureGroup - 1]?.errorType ?? '',
  }
}

function measureTimes(
  { counts, states: { names, bounds } }: RunPass,
  task: number,
  { ready, started, ended }: StageTimes,
  now: number,
): Pick<TaskView, 'seconds' | 'ran' | 'waited'> {
  const { pauses } = bounds
  const between = (from: number, to: number): number =>
    Math.max(0, activeTime(pauses, to) - activeTime(pauses, from))
  // If a killed session left the task unfinished, the end of its wait is unknown.
  const assumedEnd = isInterrupted(counts, task) ? null : now
  const until = started ?? ended ?? assumedEnd
  const waited = ready === null || until === null ? null : between(ready, until)
  if (started === null || ended === null) return { seconds: null, ran: null, waited }
  const hasOwn = hasDuration(stagesOf(counts, task))
  const recorded = valueAt(hasOwn ? names.durations : names.canceledAfter, task)
  const betweenAttempts = valueAt(names.waits, task)
  const isRecorded = hasOwn ? !Number.isNaN(recorded) : recorded > 0
  const ran = isRecorded ? recorded : Math.max(0, between(started, ended) - betweenAttempts)
  return { seconds: ran + betweenAttempts, ran, waited }
}

function runningFor({ states: { lanes } }: RunPass, task: number, now: number): number | null {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  if (segment === -1 || valueAt(lanes.outcome, segment) !== outcomeNumbers.running) return null
  return Math.max(0, now - valueAt(lanes.start, segment))
}

const nameOf = ({ states: { names } }: RunPass, task: number): string =>
  textAt(names.names, valueAt(names.nameOfTask, task))

function stateOf(passed: number): TaskState {
  if ((passed & stages.completed) !== 0) return 'DONE'
  if ((passed & stages.failed) !== 0) return 'FAILED'
  if ((passed & stages.canceled) !== 0) return 'CANCELED'
  if (hasStarted(passed)) return 'RUNNING'
  if ((passed & stages.queued) !== 0) return 'QUEUED'
  return (passed & stages.submitted) === 0 ? 'CREATED' : 'SUBMITTED'
}

/** Returns empty ids before the first attempt. */
function locationOf(
  { states: { lanes } }: RunPass,
  task: number,
): Record<'workerId' | 'nodeId', string> {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  if (segment === -1) return { workerId: '', nodeId: '' }
  const lane = valueAt(lanes.lane, segment)
  const node = JSON.parse(textAt(lanes.nodes, valueAt(lanes.nodeOfLane, lane))) as string[]
  return { workerId: textAt(lanes.lanes, lane), nodeId: node[1] ?? '' }
}

function listAttempts(
  { states: { lanes, run } }: RunPass,
  task: number,
  notes: readonly Remark[],
  now: number,
): AttemptView[] {
  const attempts: AttemptView[] = []
  const { task: taskOfSegment } = lanes
  const errors = notes.filter(({ kind }) => kind === 'attempt')
  const latest = valueAt(lanes.latestOfTask, task) - 1
  for (let segment = 0; segment <= latest; segment++) {
    if (valueAt(taskOfSegment, segment) !== task) continue
    const view = segmentAt(lanes, segment, now)
    // The times are compared with a tolerance, because end times are computed from 32-bit
    // durations.
    const error = errors.find(({ time }) => Math.abs(time - view.end) < 1e-3)
    attempts.push({
      ...view,
      // Records of other programs may not have attempt numbers.
      attempt: Math.max(view.attempt, (attempts.at(-1)?.attempt ?? 0) + 1),
      seconds: view.end - view.start,
      error: view.outcome === 'retried' ? (error?.text ?? '') : '',
      isEarlier: view.start < run.sessionStart,
    })
  }
  return attempts
}

/** Gives the last attempt the rest of the recorded duration, if that is longer than its own. */
function withRecordedSeconds(
  attempts: readonly AttemptView[],
  { ran, story }: TaskView,
): AttemptView[] {
  const last = attempts.at(-1)
  if (last === undefined || ran === null || last.outcome === 'running') return [...attempts]
  const others = attempts.slice(0, -1)
  const before = others.filter(({ start }) => start >= story.created)
  const rest = ran - before.reduce((sum, { seconds }) => sum + seconds, 0)
  return [
    ...others,
    rest > last.seconds + clockToleranceSeconds ? { ...last, seconds: rest } : last,
  ]
}
