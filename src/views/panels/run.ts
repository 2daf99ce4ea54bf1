/** Run: when the session began and ended, and what happened beside its tasks. Constant size. */

import { numberOf, type Panel, type ViewEvent } from '../panel.ts'

export interface RunState {
  sessionId: string
  startTime: number | null
  endTime: number | null
  /** As SessionEnded says, measured with a monotonic clock. */
  durationSeconds: number | null
  /** The latest time of any event. */
  lastTime: number
  /** Attempts that failed and were followed by another. */
  retries: number
  workersLost: number
  /** Batches of inference engines, and the requests in them. */
  batches: number
  batchedRequests: number
}

export const run: Panel<RunState, void, Readonly<RunState>> = {
  create: () => ({
    sessionId: '',
    startTime: null,
    endTime: null,
    durationSeconds: null,
    lastTime: 0,
    retries: 0,
    workersLost: 0,
    batches: 0,
    batchedRequests: 0,
  }),

  take(state, event) {
    if (event.event_time > state.lastTime) state.lastTime = event.event_time
    switch (event.event_type) {
      case 'SessionStarted':
        state.sessionId = event.session_id
        state.startTime = event.event_time
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

function endRun(state: RunState, event: ViewEvent): void {
  state.endTime = event.event_time
  state.durationSeconds = numberOf(event.duration_seconds)
}
