/** Recorders for tests: an event sink, a backend listener and an engine listener. */

import { AssertionError } from 'node:assert'
import type { BackendListener, Job, Notice, TaskReport } from '../backends/backend.ts'
import type { BaseEvent } from '../events/event.ts'
import type { EventSink } from '../events/sink.ts'
import type { GenerationDelta, GenerationEnd } from '../inference/generation/inference-engine.ts'
import type { GenerationListener, ToolCall } from '../inference/generation/inference-engine.ts'
import type { ToolCallPiece } from '../inference/generation/inference-engine.ts'

/**
 * Records events. A test takes the expected events in order, then asserts that none is left.
 *
 * @example
 * const sink = new RecordingSink()
 * emitTwoEvents(sink)
 * sink.take('TaskStarted')
 * sink.take('TaskCompleted')
 * sink.expectNothingMore()
 */
export class RecordingSink implements EventSink {
  readonly events: BaseEvent[] = []
  #takenCount = 0
  readonly #waiters = new Waiters()

  emit(event: BaseEvent): void {
    this.events.push(event)
    this.#waiters.wake()
  }

  /** Returns the next event. Fails if there is none or if it has a different type. */
  take(eventType: string): BaseEvent {
    const event = this.events[this.#takenCount]
    if (event?.event_type !== eventType) {
      const actual = event?.event_type ?? 'nothing'
      throw new AssertionError({
        message: `Expected ${eventType} as event ${this.#takenCount}, got ${actual}`,
        actual,
        expected: eventType,
      })
    }
    this.#takenCount++
    return event
  }

  /** Resolves with the first matching event, which may be emitted later. */
  async waitFor(matches: (event: BaseEvent) => boolean): Promise<BaseEvent> {
    let found: BaseEvent | undefined
    await this.#waiters.until(() => (found = this.events.find(matches)) !== undefined)
    return found as BaseEvent
  }

  /** Fails if some events were not taken. */
  expectNothingMore(): void {
    const rest = this.events.slice(this.#takenCount).map((event) => event.event_type)
    if (rest.length > 0) {
      throw new AssertionError({
        message: `Expected nothing more, got ${rest.join(', ')}`,
        actual: rest,
        expected: [],
      })
    }
  }
}

interface Waiter {
  readonly isMet: () => boolean
  readonly resolve: () => void
}

/** Lets tests wait for a condition, which each call of `wake` checks. */
class Waiters {
  #waiting: Waiter[] = []

  until(isMet: () => boolean): Promise<void> {
    if (isMet()) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ isMet, resolve }))
  }

  wake(): void {
    const met = this.#waiting.filter(({ isMet }) => isMet())
    if (met.length === 0) return
    this.#waiting = this.#waiting.filter((waiter) => !met.includes(waiter))
    for (const { resolve } of met) resolve()
  }
}

/** Records every report of a backend, and lets a test wait for reports. */
export class RecordingListener implements BackendListener {
  readonly notices: Notice[] = []
  readonly #reports = new Map<Job, TaskReport[]>()
  readonly #waiters = new Waiters()

  report(job: Job, report: TaskReport): void {
    const known = this.#reports.get(job)
    if (known === undefined) this.#reports.set(job, [report])
    else known.push(report)
    this.#waiters.wake()
  }

  notice(notice: Notice): void {
    this.notices.push(notice)
    this.#waiters.wake()
  }

  /** The jobs that have at least one report. */
  get jobs(): readonly Job[] {
    return [...this.#reports.keys()]
  }

  /** The reports about a job, in order. */
  of(job: Job): readonly TaskReport[] {
    return this.#reports.get(job) ?? []
  }

  /** The kinds of a job's reports in order, such as `start` and `complete`. */
  kindsOf(job: Job): readonly string[] {
    return this.of(job).map(({ kind }) => kind)
  }

  /** Whether a report other than `start` has arrived for the job. */
  hasEnded(job: Job): boolean {
    return this.of(job).some(({ kind }) => kind !== 'start')
  }

  /** Resolves when every job was reported as ended. */
  ended(jobs: readonly Job[]): Promise<void> {
    return this.until(() => jobs.every((job) => this.hasEnded(job)))
  }

  /** Resolves when the first report about the job has arrived. */
  started(job: Job): Promise<void> {
    return this.until(() => this.of(job).length > 0)
  }

  /** Resolves as soon as the condition holds. Checks it now and after every report or notice. */
  until(isMet: () => boolean): Promise<void> {
    return this.#waiters.until(isMet)
  }
}

/** The recorded calls for one request. */
export interface RecordedGeneration {
  readonly deltas: GenerationDelta[]
  readonly ends: GenerationEnd[]
  /** The number of deltas that arrived after the request had ended. */
  late: number
}

/** Records calls by request id, including calls that break the contract. */
export class GenerationRecorder implements GenerationListener {
  readonly #records = new Map<string, RecordedGeneration>()
  readonly #waiters = new Waiters()
  /**
   * Called for every delta. If it returns a promise, the request pauses until the promise resolves.
   */
  onDelta: (id: string) => Promise<void> | undefined = () => undefined

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const record = this.of(id)
    if (record.ends.length > 0) record.late++
    record.deltas.push(delta)
    this.#waiters.wake()
    return this.onDelta(id)
  }

  end(id: string, end: GenerationEnd): void {
    this.of(id).ends.push(end)
    this.#waiters.wake()
  }

  /** The ids of all requests for which calls were recorded. */
  get ids(): readonly string[] {
    return [...this.#records.keys()]
  }

  /** The recorded calls for a request. */
  of(id: string): RecordedGeneration {
    const known = this.#records.get(id)
    if (known !== undefined) return known
    const record = { deltas: [], ends: [], late: 0 }
    this.#records.set(id, record)
    return record
  }

  /** The text of all deltas of a request, joined. */
  textOf(id: string): string {
    return this.of(id)
      .deltas.map(({ text }) => text)
      .join('')
  }

  /** The tool calls of a request, assembled from all deltas. */
  toolCallsOf(id: string): readonly ToolCall[] {
    const { deltas } = this.of(id)
    const pieces = deltas.flatMap(({ toolCallPieces = [] }) => toolCallPieces)
    const calls = pieces.flatMap(({ index, id: call = '', name }) =>
      name === undefined ? [] : [{ id: call, name, arguments: joinArguments(pieces, index) }],
    )
    return [...deltas.flatMap(({ toolCalls = [] }) => toolCalls), ...calls]
  }

  /** Whether the request was reported as ended. */
  hasEnded(id: string): boolean {
    return this.of(id).ends.length > 0
  }

  /** Resolves as soon as the condition holds. Checks it now and after every call. */
  until(isMet: () => boolean): Promise<void> {
    return this.#waiters.until(isMet)
  }
}

const joinArguments = (pieces: readonly ToolCallPiece[], index: number): string =>
  pieces.flatMap((piece) => (piece.index === index ? piece.arguments : [])).join('')
