/** Single tasks of a pass over all panels: lists by state, name and node, and one task's story. */

import type { TaskState } from '../tasks/lifecycle.ts'
import type { RunPass } from './all-panels.ts'
import { activeTime } from './bounds/bounds-state.ts'
import { storyOf, type TaskStory } from './bounds/task-times.ts'
import { textAt, type TextIndex, valueAt } from './columns.ts'
import { hasDuration, hasEnded, hasStarted, stages } from './lifecycle.ts'
import { isInterrupted, stagesOf } from './panels/counts.ts'
import { dependenciesOf } from './panels/graph.ts'
import { outcomes, type SegmentView, segmentAt } from './panels/lanes.ts'
import { type Remark, remarks, type TaskMove } from './panels/remarks.ts'
import { leastUntold } from './panel.ts'
import { shortName } from './readable.ts'
import { findTask, uidOf } from './task-index.ts'
import type { Shortage } from './shortage.ts'
import { type BegunBefore, begunBefore, slotFreeBefore } from './turns.ts'
import { explainWait, retryTimeOf } from './waiting.ts'

export interface TaskView {
  /** Its number in the pass. */
  readonly task: number
  readonly uid: string
  readonly name: string
  readonly state: TaskState
  /** Its session ended before it did, and no later one has had it. */
  readonly isInterrupted: boolean
  /** Of its latest attempt; empty before the first. */
  readonly workerId: string
  readonly nodeId: string
  readonly story: TaskStory
  /** From RUNNING to the end, as its events tell; `null` for a task without both. */
  readonly seconds: number | null
  /** Of those, in which it ran: without the waits between its attempts. */
  readonly ran: number | null
  /**
   * From being ready to its start, or to its end without one, so far if it still waits, and without
   * the time between two files of the run; `null` before it is ready.
   */
  readonly waited: number | null
  /** Since the start of the attempt that runs; `null` while none does. */
  readonly runningFor: number | null
  /** Its number among `failures`; 0 if it did not fail. */
  readonly failureGroup: number
  /** Of the error with which it failed; empty without one, or where it is in no group. */
  readonly errorType: string
}

/** By how long tasks ran, so far if they run, or waited. */
export type TaskOrder = 'ran' | 'waited'

export interface TasksQuery {
  readonly state?: TaskState
  readonly name?: string
  readonly nodeId?: string
  readonly failureGroup?: number
  /** The longest first. Default: as the tasks appeared. */
  readonly order?: TaskOrder
  /** How many to show at most. */
  readonly limit: number
  /** Up to when the times of open tasks go. Default: the latest event. */
  readonly now?: number
}

/** A task with all its attempts, and what it waits for. */
export interface TaskExplanation extends TaskView {
  readonly attempts: readonly AttemptView[]
  /** Dependencies that have not ended, by their uids. */
  readonly waitsFor: readonly string[]
  /** Tasks that wait as well, and will be started before it. */
  readonly ahead: number
  /** The first of those, by their uids. */
  readonly behind: readonly string[]
  /** What it waits for a slot with; `null` where one would fit. */
  readonly shortage: Shortage | null
  /** Of the tasks before it the one that lacks something, and holds up those behind it. */
  readonly heldUpBy: { readonly uid: string; readonly shortage: Shortage } | null
  /** When its next attempt may begin, while it waits for that; else `null`. */
  readonly retryAt: number | null
  /** When the slot that it got was free; `null` where that is not known. */
  readonly workerFree: number | null
  /** Seconds in which no process of the run was there, from its creation to its end. */
  readonly away: number
  /** What began in the queue of its backend while it waited there. */
  readonly begunBefore: BegunBefore
  /** Why it was canceled; `null` for any other. */
  readonly cancelReason: string | null
  /** When its result was taken instead of running it, and from where. */
  readonly reuses: readonly { readonly time: number; readonly source: string }[]
  /** When it left a node that was lost, before it had begun there; `null` for none. */
  readonly moved: TaskMove | null
}

export interface AttemptView extends SegmentView {
  /** How long it ran, as its events tell: longer than from `start` if it began untold. */
  readonly seconds: number
  /** Why it failed, where another attempt follows; else empty. */
  readonly error: string
  /** Whether it was made by an earlier session of the run. */
  readonly isEarlier: boolean
}

/** `total` counts those beyond `limit`, too. */
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
  const sorted = order === undefined ? found : longestFirst(pass, found, order, now)
  return { tasks: sorted.slice(0, limit).map((task) => viewOf(pass, task, now)), total }
}

function longestFirst(
  pass: RunPass,
  tasks: readonly number[],
  order: TaskOrder,
  now = pass.states.bounds.lastTime,
): number[] {
  const lengths = new Map(
    tasks.map((task) => {
      const story = storyOf(pass.states.bounds.times, task, stagesOf(pass.counts, task))
      const { ran, waited } = timesOf(pass, task, story, now)
      return [task, (order === 'waited' ? waited : (ran ?? runningFor(pass, task, now))) ?? -1]
    }),
  )
  return tasks.toSorted((a, b) => (lengths.get(b) ?? 0) - (lengths.get(a) ?? 0))
}

/** The names of tasks, and the nodes that joined or had an attempt. */
export function knownWords({ states: { names, lanes, bounds } }: RunPass): {
  readonly names: readonly string[]
  readonly nodes: readonly string[]
} {
  const textsOf = (index: TextIndex): string[] =>
    Array.from({ length: Math.min(index.size, mostWords) }, (_, row) => textAt(index, row))
  const pairs = textsOf(lanes.nodes).map((pair) => JSON.parse(pair) as string[])
  const joined = bounds.nodes.map(({ nodeId }) => nodeId)
  const used = pairs.map(([, nodeId = '']) => nodeId)
  return { names: textsOf(names.names), nodes: [...joined, ...used] }
}

const mostWords = 10_000

/** All tasks in the order in which they appeared, made one by one. */
export function* eachTask(pass: RunPass): Generator<TaskView> {
  for (let task = 0; task < pass.counts.index.names.size; task++) {
    if (stagesOf(pass.counts, task) !== 0) yield viewOf(pass, task)
  }
}

/** `null` for a uid that the record does not have. `now` as in `TasksQuery`. */
export function explainTask(
  pass: RunPass,
  uid: string,
  now = pass.states.bounds.lastTime,
): TaskExplanation | null {
  const { counts, states } = pass
  const task = findTask(counts.index, uid)
  if (task === -1 || stagesOf(counts, task) === 0) return null
  const open = dependenciesOf(states.graph, task).filter(
    (dependency) => !hasEnded(stagesOf(counts, dependency)),
  )
  const nameOne = (one: number): string => uidOf(counts.index, one)
  const { ahead, behind, shortage, heldUpBy } = explainWait(pass, task)
  const view = viewOf(pass, task, now)
  const { remarks: notes, move } = remarks.show(states.remarks, { task, uid: view.uid })
  const attempts = withToldSeconds(attemptsOf(pass, task, notes, now), view)
  const { created, ended } = view.story
  const { pauses } = states.bounds
  const until = ended ?? now
  return {
    ...view,
    attempts,
    waitsFor: open.map(nameOne),
    ahead,
    behind: behind.map(nameOne),
    shortage,
    heldUpBy:
      heldUpBy === null ? null : { uid: nameOne(heldUpBy.task), shortage: heldUpBy.shortage },
    retryAt: retryTimeOf(pass, task),
    begunBefore: begunBefore(pass, task, view.story),
    workerFree: slotFreeBefore(pass, attempts[0]),
    away: until - created - (activeTime(pauses, until) - activeTime(pauses, created)),
    cancelReason: view.state === 'CANCELED' ? (notes.findLast(isCancel)?.text ?? null) : null,
    reuses: notes.flatMap(({ kind, time, text }) =>
      kind === 'reused' ? [{ time, source: text }] : [],
    ),
    moved: move,
  }
}

const isCancel = ({ kind }: Remark): boolean => kind === 'canceled'

const running = outcomes.indexOf('running')

/** Cheap checks first: most tasks match nothing. */
function matches(pass: RunPass, task: number, query: TasksQuery): boolean {
  const { counts, states } = pass
  const { state, name, nodeId, failureGroup } = query
  const passed = stagesOf(counts, task)
  if (passed === 0 || (state !== undefined && stateOf(passed) !== state)) return false
  const group = valueAt(states.failures.groupOfTask, task)
  if (failureGroup !== undefined && failureGroup !== group) return false
  if (nodeId !== undefined && locationOf(pass, task).nodeId !== nodeId) return false
  return name === undefined || isNamed(nameOf(pass, task), name)
}

/** By the whole name, or as tables show it. */
const isNamed = (name: string, asked: string): boolean =>
  name === asked || (name.endsWith(asked) && shortName(name) === asked)

function viewOf(pass: RunPass, task: number, now = pass.states.bounds.lastTime): TaskView {
  const { counts, states } = pass
  const passed = stagesOf(counts, task)
  const story = storyOf(states.bounds.times, task, passed)
  const failureGroup = valueAt(states.failures.groupOfTask, task)
  return {
    task,
    uid: uidOf(counts.index, task),
    name: nameOf(pass, task),
    state: stateOf(passed),
    isInterrupted: isInterrupted(counts, task) && !hasEnded(passed),
    ...locationOf(pass, task),
    story,
    ...timesOf(pass, task, story, now),
    runningFor: runningFor(pass, task, now),
    failureGroup,
    errorType: states.failures.groups[failureGroup - 1]?.errorType ?? '',
  }
}

function timesOf(
  { counts, states: { names, bounds } }: RunPass,
  task: number,
  { ready, started, ended }: TaskStory,
  now: number,
): Pick<TaskView, 'seconds' | 'ran' | 'waited'> {
  const { pauses } = bounds
  const between = (from: number, to: number): number =>
    Math.max(0, activeTime(pauses, to) - activeTime(pauses, from))
  // A session that was killed has left it when its last event came.
  const left = isInterrupted(counts, task) ? null : now
  const until = started ?? ended ?? left
  const waited = ready === null || until === null ? null : between(ready, until)
  if (started === null || ended === null) return { seconds: null, ran: null, waited }
  const hasOwn = hasDuration(stagesOf(counts, task))
  const told = valueAt(hasOwn ? names.durations : names.canceledAfter, task)
  const betweenAttempts = valueAt(names.waits, task)
  const isTold = hasOwn ? !Number.isNaN(told) : told > 0
  const ran = isTold ? told : Math.max(0, between(started, ended) - betweenAttempts)
  return { seconds: ran + betweenAttempts, ran, waited }
}

function runningFor({ states: { lanes } }: RunPass, task: number, now: number): number | null {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  if (segment < lanes.first || valueAt(lanes.outcome, segment) !== running) return null
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

/** Attempts that were dropped, because there were too many, have no location. */
function locationOf(
  { states: { lanes } }: RunPass,
  task: number,
): Record<'workerId' | 'nodeId', string> {
  const segment = valueAt(lanes.latestOfTask, task) - 1
  if (segment < lanes.first) return { workerId: '', nodeId: '' }
  const lane = valueAt(lanes.lane, segment)
  const node = JSON.parse(textAt(lanes.nodes, valueAt(lanes.nodeOfLane, lane))) as string[]
  return { workerId: textAt(lanes.lanes, lane), nodeId: node[1] ?? '' }
}

function attemptsOf(
  { states: { lanes, run } }: RunPass,
  task: number,
  notes: readonly Remark[],
  now: number,
): AttemptView[] {
  const attempts: AttemptView[] = []
  const { task: taskOfSegment } = lanes
  const errors = notes.filter(({ kind }) => kind === 'attempt')
  const latest = valueAt(lanes.latestOfTask, task) - 1
  for (let segment = lanes.first; segment <= latest; segment++) {
    if (valueAt(taskOfSegment, segment) !== task) continue
    const view = segmentAt(lanes, segment, now)
    // Ends are kept as durations of 32 bits: the last digits differ.
    const error = errors.find(({ time }) => Math.abs(time - view.end) < 1e-3)
    attempts.push({
      ...view,
      // Records of other programs may not tell it.
      attempt: Math.max(view.attempt, (attempts.at(-1)?.attempt ?? 0) + 1),
      seconds: view.end - view.start,
      error: view.outcome === 'retried' ? (error?.text ?? '') : '',
      isEarlier: view.start < run.sessionStart,
    })
  }
  return attempts
}

/** What is left of the told duration is that of the last attempt. */
function withToldSeconds(
  attempts: readonly AttemptView[],
  { ran, story }: TaskView,
): AttemptView[] {
  const last = attempts.at(-1)
  if (last === undefined || ran === null || last.outcome === 'running') return [...attempts]
  const others = attempts.slice(0, -1)
  const before = others.filter(({ start }) => start >= story.created)
  const rest = ran - before.reduce((sum, { seconds }) => sum + seconds, 0)
  return [...others, rest > last.seconds + leastUntold ? { ...last, seconds: rest } : last]
}
