/** The telemetry of one session: its public interface, and the order of start and stop. */

import { hostname } from 'node:os'
import { basename } from 'node:path'
import { resumedFromKey } from '../checkpoint/chain.ts'
import { checkpointFormat, type FinishedSpan } from '../checkpoint/format.ts'
import { type BaseEvent, isEvent, stampEvent } from '../events/event.ts'
import { Distributions, type Measurement, type MetricValues } from '../events/measurement.ts'
import type { EventSink, TaskChange, TaskSink, WorkSink, WorkSpan } from '../events/sink.ts'
import {
  createTaskEvent,
  SessionEnded,
  SessionStarted,
  type TelemetryEvent,
} from '../events/vocabulary.ts'
import { StateError } from '../foundation/errors.ts'
import { type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import { newUuid } from '../foundation/ids.ts'
import { expectString, invalid } from '../foundation/options.ts'
import { maskSecretsIn } from '../foundation/secrets.ts'
import { Service } from '../foundation/service.ts'
import { version } from '../foundation/version.ts'
import { resources } from '../views/panels/resources.ts'
import { telemetryCostKey, type TelemetryCost } from '../views/panels/run.ts'
import { summarize, type TelemetrySummary } from '../views/summary.ts'
import { EarlyEvents } from './bus.ts'
import { Enrichers, type SpanEnricher } from './spans/enrichers.ts'
import { EventStream, type EventStreamOptions } from './event-stream.ts'
import { type MetricSource, readMetrics } from './metrics/metrics.ts'
import type { PrometheusEndpoint, PrometheusOptions } from './metrics/prometheus-endpoint.ts'
import {
  type RecordParts,
  type ResolvedTelemetryOptions,
  resolveTelemetryOptions,
  type TelemetryOptions,
} from './options.ts'
import type { Pipeline } from './pipeline.ts'
import { runUntilSettled } from './spans/span-scope.ts'
import { sessionBackend } from './spans/finished-span.ts'
import { Subscribers } from './subscribers.ts'
import { TaskTable } from './metrics/task-table.ts'

/**
 * Events, spans, metrics and the checkpoint of one session. Created by `session.startTelemetry()`.
 *
 * @example
 * const telemetry = await session.startTelemetry({ checkpointPath: './telemetry' })
 * telemetry.subscribe((event) => {
 *   if (event.event_type === 'TaskFailed') console.log(event.task_id, event.error_type)
 * })
 */
export class TelemetryManager extends Service implements EventSink, TaskSink, WorkSink {
  readonly #options: ResolvedTelemetryOptions
  readonly #record: RecordParts
  readonly #source: MetricSource
  readonly #earlyEvents: EarlyEvents
  readonly #enrichers: Enrichers
  readonly #subscribers: Subscribers
  readonly #streams = new Set<EventStream>()
  readonly #workListeners = new Set<(span: FinishedSpan) => void>()
  #pipeline: Pipeline | null = null
  #isOpen = false
  #hasStopped = false
  #startedMs = 0
  #lateResults = 0
  #durationSeconds: number | null = null

  constructor(options: TelemetryOptions, record: RecordParts = noRecordParts) {
    super()
    this.#record = record
    this.#options = resolveTelemetryOptions(options)
    const { clock, log, sessionId } = this.#options
    this.#source = {
      sessionId,
      tasks: new TaskTable(),
      nodes: resources.create(),
      measured: new Distributions(),
    }
    this.#earlyEvents = new EarlyEvents(log)
    this.#enrichers = new Enrichers(log)
    this.#subscribers = new Subscribers({ clock, sink: this, sessionId })
  }

  /** The id of the session. */
  get sessionId(): string {
    return this.#options.sessionId
  }

  /** The path of the checkpoint; `null` before the start, or without a `checkpointPath`. */
  get checkpointFile(): string | null {
    return this.#pipeline?.checkpointFile ?? null
  }

  /**
   * The number of events that were dropped because they were emitted after `stop()`, or because too
   * many were emitted before `start()`.
   */
  get droppedEvents(): number {
    return this.#earlyEvents.dropped
  }

  /**
   * Puts an event on the bus. Returns immediately and never throws for a valid event. Before
   * `start()`, up to 1000 events wait. After `stop()`, events are only counted in `droppedEvents`.
   */
  emit(event: BaseEvent): void {
    if (!isEvent(event)) throw invalid('event', 'an event made by makeEvent()', event)
    if (this.#isOpen && this.#pipeline !== null) this.#pipeline.publish(event)
    else this.#earlyEvents.keepOrDrop(event)
  }

  /**
   * Puts a lifecycle event on the bus, like `emit`. Sessions use it, because it creates the event
   * object only if the object is needed.
   */
  recordTask(change: TaskChange): void {
    if (this.#isOpen && this.#pipeline !== null) this.#pipeline.publishChange(change)
    else this.#earlyEvents.keepOrDrop(createTaskEvent(change, this.sessionId, newUuid()))
  }

  /**
   * Calls back with every event from now on, in order. A callback that is added in the turn in
   * which `await start()` or `await startTelemetry()` returns gets SessionStarted and everything
   * after it. If the callback returns a promise, it is awaited before the next event. The returned
   * function ends the subscription.
   */
  subscribe(callback: (event: TelemetryEvent) => unknown): () => void {
    return this.#subscribers.add(callback)
  }

  /** Returns events as an async iterator with a bounded queue, which ends at `stop()`. */
  events(options: EventStreamOptions = {}): EventStream {
    const stream = new EventStream(options, (listen) => {
      const unsubscribe = this.#subscribers.add(listen)
      return () => {
        unsubscribe()
        this.#streams.delete(stream)
      }
    })
    this.#streams.add(stream)
    if (this.#hasStopped) stream.end()
    return stream
  }

  /**
   * Synchronously delivers everything emitted so far to the checkpoint and to subscribers, in the
   * usual order, instead of in the next turn of the event loop. Does nothing when called by a
   * subscriber.
   */
  dispatchNow(): void {
    this.#pipeline?.drain()
  }

  /**
   * The number of lines missing from the checkpoint because writing them failed for too long. The
   * run continues without them.
   */
  get lostLines(): number {
    return this.#pipeline?.lostLines ?? 0
  }

  /**
   * Resolves when everything emitted so far is in the checkpoint. Rejects with `CheckpointError`
   * while a failed write waits for its retry, and once after lines were lost. Each loss is reported
   * only once; `lostLines` is the total.
   */
  async flush(): Promise<void> {
    await this.#pipeline?.flush()
  }

  /**
   * Runs the callback inside a new span and returns its result. If telemetry is not running, just
   * calls the callback.
   */
  spanScope<T>(name: string, callback: () => T): T
  spanScope<T>(name: string, attributes: object | undefined, callback: () => T): T
  spanScope<T>(name: string, second: object | undefined | (() => T), third?: () => T): T {
    const callback = third ?? second
    expectString('name', name)
    if (typeof callback !== 'function') throw invalid('callback', 'a function', callback)
    const run = callback as () => T
    const pipeline = this.#pipeline
    if (pipeline === null || !this.#isOpen) return run()
    const { clock } = this.#options
    const attributes = third === undefined ? {} : (second ?? {})
    const scope = pipeline.spans.openScope(name, attributes, clock.now())
    return runUntilSettled(
      () => pipeline.spans.runInScope(scope, run),
      (failure) => {
        const span = pipeline.spans.closeScope(scope, clock.now(), failure)
        if (span !== null) pipeline.publishSpan(span)
      },
    )
  }

  /**
   * Adds a span of finished work. Its parent is the span of its task, or else the session's span.
   */
  recordSpan(span: WorkSpan): void {
    const pipeline = this.#pipeline
    if (pipeline === null || !this.#isOpen) return
    const finished = pipeline.spans.addWork(span)
    pipeline.publishSpan(finished)
    for (const call of this.#workListeners) call(finished)
  }

  /** Calls back with each span that `recordSpan` adds from now on. @internal */
  subscribeSpans(callback: (span: FinishedSpan) => void): () => void {
    this.#workListeners.add(callback)
    return () => void this.#workListeners.delete(callback)
  }

  /** Adds a value to a histogram, such as an inference latency. */
  recordMeasurement(measurement: Measurement): void {
    this.#source.measured.record(measurement)
  }

  /** Stores a task's value next to the record. Must be called before the task's terminal event. */
  protected keepInRecord(uid: string, value: unknown): void {
    this.#pipeline?.keepValue(uid, value)
  }

  /** Counts a result that was dropped because its task had already ended. */
  recordLateResult(): void {
    this.#lateResults++
  }

  /** Records the event on the active span. Does nothing without an active span. */
  annotateCurrentSpan(event: BaseEvent): void {
    if (!isEvent(event)) throw invalid('event', 'an event made by makeEvent()', event)
    if (this.#isOpen) this.#pipeline?.spans.annotate(event)
  }

  /** Registers a function that adds attributes to the span of every task created from now on. */
  registerSpanEnricher(enricher: SpanEnricher): void {
    this.#enrichers.add(enricher)
  }

  /**
   * Exports all finished spans as OTLP JSON: returns a string, or streams to the file at `path`.
   * Can be called only after `stop()`.
   */
  exportAsOtlp(): string
  exportAsOtlp(path: string): Promise<void>
  exportAsOtlp(path?: string): string | Promise<void> {
    const pipeline = this.#pipeline
    if (!this.#hasStopped || pipeline === null) {
      throw new StateError('exportAsOtlp() is possible only after start() and stop()', {
        hint: 'Call `await session.close()` or `await telemetry.stop()` first.',
      })
    }
    return pipeline.exportAsOtlp(path === undefined ? null : expectString('path', path))
  }

  /** The spans of the tasks that have ended. */
  taskSpans(): FinishedSpan[] {
    return [...(this.#pipeline?.spans.finishedTasks() ?? [])]
  }

  /** Returns each instrument's current value by name, as in a metric line of the checkpoint. */
  readMetrics(): Record<string, number> {
    return readMetrics(this.#source)
  }

  /**
   * Serves the current metrics to Prometheus until the returned endpoint is closed or telemetry
   * stops. Rejects with `StateError` while telemetry is not running.
   */
  async servePrometheus(options: PrometheusOptions = {}): Promise<PrometheusEndpoint> {
    const isRunning = (): boolean => this.#isOpen && !this.isStopping
    const pipeline = this.#pipeline
    if (pipeline === null || !isRunning()) {
      throw new StateError('metrics are served only while telemetry is running')
    }
    const endpoint = await pipeline.servePrometheus(options)
    if (isRunning()) return endpoint
    await endpoint.close()
    throw new StateError('telemetry was stopped meanwhile')
  }

  /**
   * Returns the present values of the metrics of tasks and nodes, as an inference server shows them
   * at `/metrics`. Returns `null` before the start.
   */
  async collectMetrics(): Promise<MetricValues | null> {
    return (await this.#pipeline?.collectMetrics()) ?? null
  }

  /** A summary of the run so far. */
  summary(): TelemetrySummary {
    return summarize({
      sessionId: this.sessionId,
      durationSeconds: this.#elapsedSeconds(),
      totals: this.#source.tasks.totals,
      durations: this.#source.tasks.durations(),
      lateResults: this.#lateResults,
      nodes: resources.show(this.#source.nodes),
      telemetry: this.#pipeline?.cost ?? noCost,
    })
  }

  /** Starts telemetry. Rejects with `StateError` after `stop()`: a manager cannot be restarted. */
  override start(): Promise<void> {
    if (!this.isStopping) return super.start()
    const hint = 'Create another TelemetryManager; the telemetry of a session ends with it.'
    return Promise.reject(new StateError('telemetry was stopped and cannot start again', { hint }))
  }

  protected override async onStart(): Promise<void> {
    const { clock, sessionId, spanProcessors, metricReaders } = this.#options
    // OpenTelemetry is loaded lazily: it loads slowly, and workers import this package without
    // starting telemetry. Its context API is always needed, its SDK only for processors or readers.
    const pipelines = await import('./pipeline.ts')
    const mirrors = spanProcessors.length === 0 ? null : await import('./otel/otel-mirror.ts')
    const readers = metricReaders.length === 0 ? null : await import('./otel/otel-metrics.ts')
    this.#pipeline = new pipelines.Pipeline({
      options: this.#options,
      record: this.#record,
      source: this.#source,
      enrichers: this.#enrichers,
      subscribers: this.#subscribers,
      mirrors,
      readers,
    })
    this.#startedMs = clock.monotonicMs()
    this.#isOpen = true
    const common = { session_id: sessionId, backend: sessionBackend }
    this.emit(stampEvent(SessionStarted, clock, { ...common, attributes: this.#runFacts() }))
    for (const event of this.#earlyEvents.release()) this.emit(event)
  }

  protected override async onStop(): Promise<void> {
    const pipeline = this.#pipeline
    if (pipeline === null) return
    const { clock, sessionId, stopDeadlineMs } = this.#options
    const deadline = clock.monotonicMs() + stopDeadlineMs
    await this.#drainUntil(pipeline, deadline)
    for (const span of pipeline.spans.closeOpen(clock.now())) pipeline.publishSpan(span)
    pipeline.retryWrite()
    this.#durationSeconds = this.#elapsedSeconds()
    this.emit(
      stampEvent(SessionEnded, clock, {
        session_id: sessionId,
        backend: sessionBackend,
        attributes: Object.freeze({ [telemetryCostKey]: Object.freeze({ ...pipeline.cost }) }),
        duration_seconds: this.#durationSeconds,
      }),
    )
    this.#isOpen = false
    pipeline.drainOnce()
    this.#hasStopped = true
    this.#earlyEvents.end()
    await this.#closeStreams(Math.max(0, deadline - clock.monotonicMs()))
    await pipeline.close()
  }

  protected override onAbandon(): void {
    this.#hasStopped = true
    for (const stream of this.#streams) stream.end()
    this.#earlyEvents.end()
  }

  /** Drains until no event is left, because subscribers may emit events in response to events. */
  async #drainUntil(pipeline: Pipeline, deadline: number): Promise<void> {
    const { clock } = this.#options
    for (;;) {
      pipeline.drainOnce()
      await this.#subscribers.settle(Math.max(0, deadline - clock.monotonicMs()))
      if (pipeline.isDrained || clock.monotonicMs() >= deadline) return
      // Lets the application's timers run even if a subscriber emits endlessly.
      await new Promise<void>((resolve) => clock.nextTurn(resolve))
    }
  }

  async #closeStreams(deadlineMs: number): Promise<void> {
    const busySubscribers = await this.#subscribers.settle(deadlineMs)
    for (const stream of this.#streams) stream.end()
    if (busySubscribers.length === 0) return
    const names = busySubscribers
      .map(({ name, pending }) => `${name} (${pending} events)`)
      .join(', ')
    this.#options.log.warn('SubscribersLate', `stop() no longer waits for: ${names}`)
  }

  /**
   * The attributes of SessionStarted. Includes only the file name of the program, because its
   * folder and arguments may contain secrets.
   */
  #runFacts(): JsonObject {
    const { resumedFrom: before } = this.#record
    const facts = toJsonObject({
      format: checkpointFormat,
      version,
      host: hostname(),
      pid: process.pid,
      program: basename(process.argv[1] ?? ''),
      ...this.#record.runFacts,
    })
    const shown = maskSecretsIn(facts)
    return before === null ? shown : Object.freeze({ ...shown, [resumedFromKey]: before })
  }

  #elapsedSeconds(): number {
    if (this.#durationSeconds !== null) return this.#durationSeconds
    if (this.#pipeline === null) return 0
    return (this.#options.clock.monotonicMs() - this.#startedMs) / 1000
  }
}

const noCost: TelemetryCost = Object.freeze({
  main_cpu_seconds: 0,
  thread_cpu_seconds: 0,
  in_place_writes: 0,
  bytes_written: 0,
  spill_bytes: 0,
})

const noRecordParts: RecordParts = Object.freeze({
  maxValueBytes: null,
  resumedFrom: null,
  lock: null,
  runFacts: Object.freeze({}),
})
