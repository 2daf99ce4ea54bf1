/** Tells what the ledger decided as events. It decides nothing itself. */

import type { AttemptFacts, Notice } from '../backends/backend.ts'
import { type EventClass, stampEvent } from '../events/event.ts'
import { BackendThrottled, TaskAttempt, WorkerLost } from '../events/library-events.ts'
import type { EventSink } from '../events/sink.ts'
import {
  TaskCanceled,
  TaskCompleted,
  TaskCreated,
  TaskFailed,
  TaskQueued,
  TaskStarted,
  TaskSubmitted,
} from '../events/vocabulary.ts'
import type { Clock } from '../foundation/clock.ts'
import { messageOf } from '../foundation/errors.ts'
import { type JsonObject, type JsonValue, toJsonValue } from '../foundation/json-value.ts'
import { maskSecrets } from '../foundation/secrets.ts'
import { errorTypeOf, TaskCanceledError } from '../foundation/task-errors.ts'
import type { Change } from '../tasks/lifecycle.ts'
import type { Entry } from './entry.ts'

/** What an end is told with, beyond the change itself. */
export interface Ending {
  readonly facts?: AttemptFacts
  /** The original error of a failure, or the cancellation. */
  readonly error?: unknown
  /** What a completed task returned. */
  readonly value?: unknown
}

/** Hears of every change of every task, in order. Must not throw. */
export interface Narrator {
  created(entry: Entry, time: number): void
  changed(entry: Entry, change: Change, ending: Ending): void
  noticed(backend: string, notice: Notice): void
}

/** For a session without telemetry. */
export const nullNarrator: Narrator = { created() {}, changed() {}, noticed() {} }

export interface NarratorParts {
  readonly sink: EventSink
  readonly clock: Clock
  readonly sessionId: string
  /** Adds what tasks returned to TaskCompleted. */
  readonly keepResults: boolean
}

const longestResult = 65_536
const longestTail = 2048

const eventClasses: Readonly<Record<string, EventClass>> = {
  TaskSubmitted,
  TaskQueued,
  TaskStarted,
  TaskCompleted: TaskCompleted as unknown as EventClass,
  TaskFailed: TaskFailed as unknown as EventClass,
  TaskCanceled: TaskCanceled as unknown as EventClass,
}

export class EventNarrator implements Narrator {
  readonly #parts: NarratorParts

  constructor(parts: NarratorParts) {
    this.#parts = parts
  }

  created(entry: Entry, time: number): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    const attributes = describeTask(entry)
    const { uid: task_id } = entry.task
    sink.emit(
      stampEvent(TaskCreated, clock, {
        session_id,
        backend: '',
        event_time: time,
        task_id,
        attributes,
      }),
    )
  }

  changed(entry: Entry, change: Change, ending: Ending): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    const base = {
      session_id,
      backend: entry.backend,
      event_time: change.time,
      task_id: entry.task.uid,
      node_id: entry.nodeId,
    }
    if (change.event === 'tutti.TaskAttempt') {
      const failure = describeFailure(ending.error)
      sink.emit(stampEvent(TaskAttempt, clock, { ...base, ...failure, attempt: entry.attempt }))
      return
    }
    const eventClass = change.event === null ? undefined : eventClasses[change.event]
    if (eventClass === undefined) return
    const fields = {
      ...base,
      duration_seconds: change.durationSeconds,
      error_type: change.event === 'TaskFailed' ? errorTypeOf(ending.error) : '',
      attributes: this.#attributesOf(entry, change, ending),
    }
    sink.emit(stampEvent(eventClass, clock, fields))
  }

  noticed(backend: string, notice: Notice): void {
    const { sink, clock, sessionId: session_id } = this.#parts
    if (notice.kind === 'throttled') {
      const { limit } = notice
      const reason = maskSecrets(notice.reason)
      sink.emit(stampEvent(BackendThrottled, clock, { session_id, backend, reason, limit }))
      return
    }
    const { workerId: worker_id, nodeId: node_id, tasks } = notice
    const reason = maskSecrets(notice.reason)
    sink.emit(
      stampEvent(WorkerLost, clock, { session_id, backend, node_id, worker_id, reason, tasks }),
    )
  }

  #attributesOf(entry: Entry, change: Change, ending: Ending): JsonObject {
    const task = describeTask(entry)
    if (change.event === 'TaskSubmitted' || change.event === 'TaskQueued') return task
    const attributes: Record<string, JsonValue> = { ...task }
    if (entry.workerId !== null) attributes['worker_id'] = entry.workerId
    attributes['attempt'] = entry.attempt
    if (change.event === 'TaskStarted') return Object.freeze(attributes)
    if (change.isIncomplete) attributes['incomplete_lifecycle'] = true
    Object.assign(attributes, describeFacts(ending.facts))
    if (change.event === 'TaskFailed')
      Object.assign(attributes, describeFailure(ending.error), describeStack(ending.error))
    if (change.event === 'TaskCanceled' && ending.error instanceof TaskCanceledError) {
      attributes['reason'] = maskSecrets(ending.error.reason)
    }
    if (change.event === 'TaskCompleted' && this.#parts.keepResults) {
      Object.assign(attributes, describeResult(ending.value))
    }
    return Object.freeze(attributes)
  }
}

/** The same object for most events of a task; a model that is known only after routing replaces it. */
function describeTask(entry: Entry): JsonObject {
  const executable = entry.executable
  if (entry.attributes?.['executable'] === executable) return entry.attributes
  const own = { executable, task_type: entry.task.kind }
  entry.attributes = Object.freeze(
    entry.task.attributes === null ? own : { ...entry.task.attributes, ...own },
  )
  return entry.attributes
}

function describeFailure(error: unknown): { error_type: string; error_message: string } {
  return { error_type: errorTypeOf(error), error_message: toText(messageOf(error)) }
}

/** Whatever was thrown may throw again at a touch. */
function describeStack(error: unknown): { error_stack?: string } {
  try {
    const { stack } = error as { stack?: unknown }
    return error instanceof Error && typeof stack === 'string' ? { error_stack: toText(stack) } : {}
  } catch {
    return {}
  }
}

/** Without secrets, and not longer than an attribute may be. */
const toText = (text: string): string => String(toJsonValue(maskSecrets(text)))

function describeFacts(facts: AttemptFacts | undefined): Record<string, JsonValue> {
  if (facts === undefined) return {}
  const { cpuSeconds, peakMemoryBytes, exitCode, signal, stdoutTail, stderrTail } = facts
  const known: Record<string, JsonValue> = {}
  if (cpuSeconds !== undefined) known['cpu_seconds'] = cpuSeconds
  if (peakMemoryBytes !== undefined) known['peak_memory_bytes'] = peakMemoryBytes
  if (exitCode !== undefined) known['exit_code'] = exitCode
  if (signal !== undefined) known['signal'] = signal
  if (stdoutTail !== undefined) known['stdout_tail'] = toTail(stdoutTail)
  if (stderrTail !== undefined) known['stderr_tail'] = toTail(stderrTail)
  return known
}

/** Secrets go first: a cut through one would leave half of it. */
function toTail(text: string): string {
  const bytes = Buffer.from(maskSecrets(text))
  if (bytes.length <= longestTail) return bytes.toString()
  let from = bytes.length - longestTail
  // The cut may fall into a character.
  while (((bytes[from] ?? 0) & 0xc0) === 0x80) from++
  return bytes.toString('utf8', from)
}

/** A result that JSON cannot hold whole is left out: a part would be taken for all of it. */
function describeResult(value: unknown): Record<string, JsonValue> {
  const text = JSON.stringify(toJsonValue(value))
  const isWhole = Buffer.byteLength(text) <= longestResult && !text.includes('[unserializable: ')
  return isWhole ? { result: maskSecrets(text) } : { result_omitted: true }
}
