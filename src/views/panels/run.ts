/** Run: the session's start and end, and numbers of the run as a whole. Has constant size. */

import { hasEnded } from '../lifecycle.ts'
import { numberOf, type Panel, resumption, type ViewEvent } from '../panel.ts'

/** The state of a record. `interrupted`: the process exited without recording the end. */
export type RecordState = 'running' | 'ended' | 'interrupted'

/** The cost of telemetry itself. */
export interface TelemetryCost {
  /** An estimate of the CPU time in the emitting thread, from samples. */
  readonly main_cpu_seconds: number
  /** The CPU time of the thread that writes the record; 0 if there is none. */
  readonly thread_cpu_seconds: number
  /**
   * How often an emitter had to wait for the thread, or to write to the record itself, because the
   * thread was too slow.
   */
  readonly in_place_writes: number
  /** The size of the record's lines. */
  readonly bytes_written: number
  /** The size of the temporary file with the spans of ended tasks. */
  readonly spill_bytes: number
}

/** The attribute of SessionEnded with the cost of telemetry. */
export const telemetryCostKey = 'tutti.telemetry'

const createRun = () => ({
  sessionId: '',
  startTime: null as number | null,
  endTime: null as number | null,
  /**
   * The duration in SessionEnded, which is measured with a monotonic clock. For a resumed run, it
   * is the sum over all sessions. A session without that event counts from its first to its last
   * event.
   */
  durationSeconds: null as number | null,
  sessions: 0,
  sessionStart: 0,
  earlierSeconds: 0,
  lastTime: 0,
  retries: 0,
  workersLost: 0,
  taskCpuSeconds: 0,
  batches: 0,
  batchedRequests: 0,
  /** The cost of telemetry in the latest session that has ended; `null` if unknown. */
  telemetryCost: null as TelemetryCost | null,
})

export type RunState = ReturnType<typeof createRun>

export const run: Panel<RunState, void, Readonly<RunState>> = {
  create: createRun,

  take(state, event, step) {
    if (step === resumption) endPreviousSession(state)
    if (event.event_time > state.lastTime) state.lastTime = event.event_time
    if (hasEnded(step.after) && step.after !== step.before) {
      state.taskCpuSeconds += numberOf(event.attributes['cpu_seconds']) ?? 0
    }
    switch (event.event_type) {
      case 'SessionStarted':
        beginSession(state, event)
        break
      case 'SessionEnded':
        endRun(state, event)
        break
      case 'tutti.TaskAttempt':
        state.retries++
        break
      case 'tutti.WorkerLost':
        state.workersLost++
        break
      case 'tutti.Batch':
        state.batches++
        state.batchedRequests += numberOf(event.size) ?? 0
        break
    }
  },

  show: (state) => ({ ...state }),
}

interface TimeRange {
  readonly from: number
  readonly to: number
}

/**
 * Returns the recorded duration, or the time from the first event until `now`. Excludes the time
 * between two files, except `attended` times, in which agents of a cluster continued to run.
 */
export function runSeconds(
  { startTime, durationSeconds, earlierSeconds, sessionStart }: Readonly<RunState>,
  attended: readonly TimeRange[],
  now: number,
): number {
  const between = attended.reduce((sum, { from, to }) => sum + to - from, 0)
  if (durationSeconds !== null) return durationSeconds + between
  return startTime === null ? 0 : earlierSeconds + between + Math.max(0, now - sessionStart)
}

function beginSession(state: RunState, event: ViewEvent): void {
  state.sessionId = event.session_id
  state.startTime ??= event.event_time
  state.sessionStart = event.event_time
  state.sessions++
}

/** Ends the previous session. Its SessionEnded may be missing. */
function endPreviousSession(state: RunState): void {
  const seconds = state.earlierSeconds + Math.max(0, state.lastTime - state.sessionStart)
  state.earlierSeconds = state.endTime === null ? seconds : (state.durationSeconds ?? seconds)
  state.endTime = null
  state.durationSeconds = null
}

function endRun(state: RunState, event: ViewEvent): void {
  state.endTime = event.event_time
  const seconds = numberOf(event.duration_seconds)
  state.durationSeconds = seconds === null ? null : state.earlierSeconds + seconds
  const cost = event.attributes[telemetryCostKey] as Record<string, unknown> | null | undefined
  if (typeof cost !== 'object' || cost === null) return
  const valueOf = (name: keyof TelemetryCost): number => numberOf(cost[name]) ?? 0
  state.telemetryCost = {
    main_cpu_seconds: valueOf('main_cpu_seconds'),
    thread_cpu_seconds: valueOf('thread_cpu_seconds'),
    in_place_writes: valueOf('in_place_writes'),
    bytes_written: valueOf('bytes_written'),
    spill_bytes: valueOf('spill_bytes'),
  }
}
