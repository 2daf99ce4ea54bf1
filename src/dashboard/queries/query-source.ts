/** The data from which the views of the page are computed: the known part of a run. */

import type { KeptOutput } from '../../record/task-history.ts'
import type { RunPass } from '../../views/all-panels.ts'
import type { ViewEvent } from '../../views/panel.ts'
import type { RecordState } from '../../views/panels/run.ts'
import type { HeadView } from '../protocol.ts'

/** The contents of the record about one task. */
export interface RecordedHistory {
  /** Oldest first. If the task has very many attempts, the events in the middle are left out. */
  readonly events: readonly ViewEvent[]
  /** The stored output of a program that has ended. */
  readonly kept: KeptOutput | null
  /** Whether the events are not known yet, because the record is being read for them. */
  readonly isReading: boolean
}

/** Losses and delays in the telemetry of a live session. */
export interface TelemetryFacts {
  readonly droppedEvents: number
  readonly lostLines: number
  /** How often an emitter had to wait for the writer of the record, or to write itself. */
  readonly inPlaceWrites: number
}

/** The current requests to a server of models. */
export interface ServingFacts {
  /** The time since which requests are counted, in wall-clock seconds. */
  readonly since: number
  readonly model: string
  readonly running: number
  readonly queued: number
  readonly workers: number
}

export interface QuerySource extends Pick<HeadView, 'reading' | 'beginsAt' | 'missing'> {
  readonly pass: RunPass
  readonly sessionId: string
  /** `running` while an existing record is read for the first time. */
  readonly state: RecordState
  /** The current time of a running session, and otherwise the time of its latest event. */
  readonly now: number
  /** The files of the run, oldest first; none without a record. */
  readonly files: readonly string[]
  /** The latest metric line of the record; `null` if there is none. */
  readonly metrics: Readonly<Record<string, unknown>> | null
  /** `null` if the session runs in another process or has already ended. */
  readonly telemetry: TelemetryFacts | null
  /** `null` unless a server of models is shown instead of a session. */
  readonly serving: ServingFacts | null
  /** The latest events, oldest first. */
  readonly events: readonly ViewEvent[]
  /**
   * Reads the record for one task. Resolves with `null` without a record, and during the first
   * reading.
   */
  readTask(uid: string): Promise<RecordedHistory | null>
  /** The run as it was at an earlier time, in wall-clock seconds. */
  at(time: number): Promise<QuerySource>
}
