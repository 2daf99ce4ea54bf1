/** Health: problems of the record, and of the run other than failed tasks. Has constant size. */

import { numberOf, type Panel, resumption, textOf, type ViewEvent } from '../panel.ts'
import { countText } from '../readable.ts'

/** A time without events although the session polls its nodes: the process was suspended. */
export interface Gap {
  readonly from: number
  readonly to: number
}

/** The longest delay of the session's event loop since the previous entry, in milliseconds. */
export interface LoopDelay {
  readonly time: number
  readonly ms: number
}

export interface Warning {
  readonly time: number
  readonly type: string
  /** The affected node, worker or subscriber; empty if unknown. */
  readonly subject: string
  readonly text: string
}

const createHealth = () => ({
  gaps: [] as Gap[],
  gapCount: 0,
  gapSeconds: 0,
  /** The latest warnings, oldest first. */
  warnings: [] as Warning[],
  /** The number of warnings by event type. */
  warningCounts: new Map<string, number>(),
  lostLines: 0,
  isDegraded: false,
  nodesLost: 0,
  nodesDrained: 0,
  workersLost: 0,
  enginesLost: 0,
  tasksMoved: 0,
  staleResults: 0,
  throttled: 0,
  subscriberErrors: 0,
  /** The delays of the session's event loop, oldest first. */
  loopDelays: [] as LoopDelay[],
  /** The maximum delay between an event and its emission, in seconds. */
  maxDelay: 0,
  /** The largest change of the system clock that was detected, in seconds; 0 if there was none. */
  clockStep: 0,
  clock: { sessionStart: null, emitted: null } as ClockState,
  silence: { lastTime: 0, pollSeconds: 0, polledNode: null, lastPoll: null } as SilenceState,
})

export type HealthState = ReturnType<typeof createHealth>

export interface ClockState {
  sessionStart: number | null
  emitted: number | null
}

export interface SilenceState {
  lastTime: number
  /** The shortest time between two polls of `polledNode`; 0 if unknown. */
  pollSeconds: number
  polledNode: string | null
  lastPoll: number | null
}

export type HealthView = Readonly<Omit<HealthState, 'warningCounts' | 'silence' | 'clock'>> & {
  readonly warningCounts: Readonly<Record<string, number>>
}

const maxWarnings = 200
const maxGaps = 100
const maxLoopDelays = 480
const maxTextLength = 300
/** The minimum length of a gap in seconds. A gap must also be at least `pollsPerGap` polls long. */
const minGapSeconds = 30
const pollsPerGap = 4
const minClockStep = 1
const maxDrift = 0.001

export const health: Panel<HealthState, void, HealthView> = {
  create: createHealth,

  take(state, event, step) {
    const emitted = numberOf(event.emit_time) ?? event.event_time
    if (emitted - event.event_time > state.maxDelay) {
      state.maxDelay = emitted - event.event_time
    }
    findClockStep(state, event, emitted)
    // The time between two sessions of the run is not a gap, because no process was running.
    if (step === resumption) Object.assign(state.silence, { lastPoll: null, lastTime: emitted })
    else findGap(state, event, emitted)
    if (event.event_type === 'ResourceUpdate') addLoopDelay(state, event)
    const warn = warnings.get(event.event_type)
    if (warn !== undefined) addWarning(state, event, warn(state, event))
  },

  show(state) {
    const { silence: _silence, clock: _clock, ...shown } = state
    return { ...shown, warningCounts: Object.fromEntries(state.warningCounts) }
  },
}

/** Events whose time comes from the process of the session, not from another machine. */
const sessionTimedEvents: ReadonlySet<string> = new Set([
  'SessionStarted',
  'TaskCreated',
  'TaskSubmitted',
  'TaskQueued',
  'SessionEnded',
])

/**
 * Finds changes of the clock. Events are emitted one after another, so an earlier time means that
 * the clock was set back. The duration of a session is measured with a monotonic clock, so a
 * different duration in event times is also a change.
 */
function findClockStep(state: HealthState, event: ViewEvent, emitted: number): void {
  if (!sessionTimedEvents.has(event.event_type)) return
  const { clock } = state
  if (event.event_type === 'SessionStarted') {
    clock.sessionStart = event.event_time
    clock.emitted = null
  }
  const back = (clock.emitted ?? emitted) - emitted
  if (back > minClockStep) state.clockStep = Math.max(state.clockStep, back)
  clock.emitted = emitted
  const seconds = numberOf(event.duration_seconds)
  if (event.event_type !== 'SessionEnded' || seconds === null || clock.sessionStart === null) return
  const step = Math.abs(event.event_time - clock.sessionStart - seconds)
  // Small differences are ignored, because the two clocks may drift.
  if (step > Math.max(minClockStep, maxDrift * seconds)) {
    state.clockStep = Math.max(state.clockStep, step)
  }
}

function findGap(state: HealthState, event: ViewEvent, time: number): void {
  const { silence } = state
  const { lastTime, pollSeconds } = silence
  const isKnown = lastTime > 0 && pollSeconds > 0
  if (isKnown && time - lastTime > Math.max(minGapSeconds, pollsPerGap * pollSeconds)) {
    state.gapCount++
    state.gapSeconds += time - lastTime
    if (state.gaps.length < maxGaps) state.gaps.push({ from: lastTime, to: time })
  }
  if (time > lastTime) silence.lastTime = time
  const isPoll = event.event_type === 'ResourceUpdate' && event.resource_scope === 'per_node'
  if (isPoll) recordPoll(silence, event.node_id, time)
}

function recordPoll(silence: SilenceState, nodeId: string | null, time: number): void {
  silence.polledNode ??= nodeId
  if (nodeId !== silence.polledNode) return
  const seconds = time - (silence.lastPoll ?? time)
  const isShorter = silence.pollSeconds === 0 || seconds < silence.pollSeconds
  if (seconds > 0 && isShorter) silence.pollSeconds = seconds
  silence.lastPoll = time
}

/** Adds a delay. If there are too many, keeps only the longer one of each pair. */
function addLoopDelay({ loopDelays }: HealthState, { attributes, event_time: time }: ViewEvent) {
  const ms = numberOf(attributes['loop_delay_ms'])
  if (ms === null) return
  loopDelays.push({ time, ms })
  if (loopDelays.length < maxLoopDelays) return
  const all = loopDelays.splice(0)
  for (let at = 0; at < all.length; at += 2) {
    const pair = all.slice(at, at + 2)
    const longest = pair.reduce((a, b) => (b.ms > a.ms ? b : a))
    loopDelays.push(longest)
  }
}

type WarningText = readonly [subject: unknown, text: unknown]

const warningTexts: Readonly<
  Record<string, (state: HealthState, event: ViewEvent) => WarningText>
> = {
  'tutti.SubscriberError'(state, { subscriber, message, count }) {
    state.subscriberErrors += numberOf(count) ?? 1
    return [subscriber, message]
  },
  'tutti.CheckpointDegraded'(state, { errno }) {
    state.isDegraded = true
    return ['', `the record cannot be written: ${textOf(errno)}`]
  },
  'tutti.CheckpointRecovered'(state, { lost }) {
    state.isDegraded = false
    state.lostLines += numberOf(lost) ?? 0
    const lines = countText(numberOf(lost) ?? 0, 'line')
    return ['', `the record is written again; lost: ${lines}`]
  },
  'tutti.NodeLost'(state, { node_id, reason }) {
    state.nodesLost++
    return [node_id, reason]
  },
  'tutti.NodeDrained'(state, { node_id }) {
    state.nodesDrained++
    return [node_id, 'drained']
  },
  'tutti.WorkerLost'(state, { worker_id, reason }) {
    state.workersLost++
    return [worker_id, reason]
  },
  'tutti.EngineLost'(state, { worker_id, reason }) {
    state.enginesLost++
    return [worker_id, reason]
  },
  'tutti.TaskMoved'(state, { node_id, tasks }) {
    const count = Array.isArray(tasks) ? tasks.length : 0
    state.tasksMoved += count
    return [node_id, `${countText(count, 'task')} moved to other nodes`]
  },
  'tutti.StaleResult'(state, { task_id }) {
    state.staleResults++
    return [task_id, 'a result came after its task had moved or ended']
  },
  'tutti.BackendThrottled'(state, { backend, reason, limit }) {
    state.throttled++
    return [backend, `${textOf(reason)}; at most ${numberOf(limit) ?? 0} at a time`]
  },
  'tutti.LoopBlocked'(_state, { executable, seconds }) {
    return [executable, `held the event loop for ${(numberOf(seconds) ?? 0).toFixed(1)} s`]
  },
  'tutti.AllocationEnding'(_state, { backend, attributes }) {
    const id = textOf(attributes['allocation'])
    return [backend, `${id === '' ? 'the allocation' : `allocation ${id}`} ends soon`]
  },
}

/** A map, because a record may contain any event type, such as `constructor`. */
const warnings = new Map(Object.entries(warningTexts))

function addWarning(state: HealthState, event: ViewEvent, [subject, text]: WarningText): void {
  const { event_type: type, event_time: time } = event
  state.warningCounts.set(type, (state.warningCounts.get(type) ?? 0) + 1)
  if (state.warnings.length >= maxWarnings) state.warnings.shift()
  const truncate = (value: unknown): string => textOf(value).slice(0, maxTextLength)
  state.warnings.push({ time, type, subject: truncate(subject), text: truncate(text) })
}
