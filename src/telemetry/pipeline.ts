/**
 * Running telemetry: from `emit` through the bus to the checkpoint, span processors and
 * subscribers.
 */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { FinishedSpan } from '../checkpoint/format.ts'
import { nodeFiles } from '../checkpoint/files.ts'
import { removeRecord } from '../checkpoint/record-names.ts'
import { recordIdOf, ResultsFile } from '../checkpoint/results-file.ts'
import { CheckpointWriter } from '../checkpoint/writer.ts'
import { type BaseEvent, stampEvent } from '../events/event.ts'
import { CheckpointDegraded, CheckpointRecovered } from '../events/library-events.ts'
import { newTraceId } from '../foundation/ids.ts'
import { wrapTasks } from '../foundation/task-context.ts'
import { atExit } from '../runtime/at-exit.ts'
import { StepScheduler } from '../runtime/turn-budget.ts'
import { noStep } from '../views/panel.ts'
import { concernsNodes, resources } from '../views/panels/resources.ts'
import { EventBus } from './bus.ts'
import type { Enrichers } from './spans/enrichers.ts'
import { type MetricSource, readMetrics } from './metrics/metrics.ts'
import type { PrometheusEndpoint, PrometheusOptions } from './metrics/prometheus-endpoint.ts'
import { TaskGroups } from './metrics/task-groups.ts'
import type { RecordParts, ResolvedTelemetryOptions } from './options.ts'
import type { MetricReaders } from './otel/otel-metrics.ts'
import { holdContextManager, OtelActiveSpans } from './otel/otel-context.ts'
import type { OtelSpanMirror } from './otel/otel-mirror.ts'
import { createResource, type Resource } from './otel/otel.ts'
import { toOtlpString, writeOtlpFile } from './otel/otlp.ts'
import { Recorder } from './recorder.ts'
import { Envelope } from './spans/envelope.ts'
import { sessionBackend } from './spans/finished-span.ts'
import { nullMirror, type SpanMirror } from './spans/span-mirror.ts'
import { SpanBook } from './spans/spans.ts'
import type { Subscribers } from './subscribers.ts'

/** The part of an event loop turn that collecting metrics may take. */
const collectingMsPerTurn = 5

export interface PipelineParts {
  readonly options: ResolvedTelemetryOptions
  readonly record: RecordParts
  readonly source: MetricSource
  readonly enrichers: Enrichers
  readonly subscribers: Subscribers
  /** Loaded only with `spanProcessors` or `metricReaders`; otherwise `null`. */
  readonly mirrors: { readonly OtelSpanMirror: typeof OtelSpanMirror } | null
  readonly readers: { readonly MetricReaders: typeof MetricReaders } | null
}

/** The constructor opens the checkpoint, so that an unwritable folder is reported immediately. */
export class Pipeline {
  readonly book: SpanBook
  readonly mirror: SpanMirror
  #resource: Resource | null = null
  readonly #traceId: string
  readonly #removals: readonly (() => void)[]
  readonly #parts: PipelineParts
  readonly #bus: EventBus
  readonly #recorder: Recorder | null
  readonly #readers: MetricReaders | null
  readonly #scheduler: StepScheduler
  readonly #groups: TaskGroups
  readonly #endpoints = new Set<PrometheusEndpoint>()
  readonly #removeExitCallback: () => void

  constructor(parts: PipelineParts) {
    const { options, source, enrichers, subscribers } = parts
    const { clock, log, sessionId } = options
    this.#parts = parts
    const active = new OtelActiveSpans(clock, log)
    const application = active.ids()
    const parent = options.continueTrace ? application : null
    this.#traceId = parent?.traceId ?? newTraceId()
    this.mirror = this.#createMirror()
    this.book = new SpanBook({
      sessionId,
      traceId: this.#traceId,
      parent,
      link: parent === null ? application : null,
      active,
      tasks: source.tasks,
      enrichers,
      mirror: this.mirror,
    })
    this.#scheduler = new StepScheduler(clock, collectingMsPerTurn)
    this.#groups = new TaskGroups(sessionId, source.tasks, this.#scheduler)
    this.#recorder = this.#createRecorder()
    this.#bus = new EventBus({
      clock,
      log,
      record: this.#recorder,
      subscribers,
      inContext: AsyncLocalStorage.snapshot(),
    })
    this.#readers = this.#bindReaders()
    const { book } = this
    this.#removals = [wrapTasks((uid, run) => book.runInTask(uid, run)), holdContextManager()]
    this.#removeExitCallback = this.#recordAtExit()
  }

  get checkpointFile(): string | null {
    return this.#recorder?.path ?? null
  }

  get lostLines(): number {
    return this.#recorder?.linesLost ?? 0
  }

  publish(event: BaseEvent): void {
    if (concernsNodes(event.event_type)) resources.take(this.#parts.source.nodes, event, noStep)
    this.#bus.publish(this.book.admit(event))
  }

  /** Stores the value of a task next to the record, if values are stored. */
  keepValue(uid: string, value: unknown): void {
    this.#recorder?.keepValue(uid, value)
  }

  publishSpan(span: FinishedSpan): void {
    this.#bus.publish(new Envelope(null, span.span_id, span))
  }

  /** All finished spans: as a string if `path` is `null`, otherwise streamed to the file. */
  exportAsOtlp(path: string | null): string | Promise<void> {
    const spans = this.book.finished()
    const resource = this.#readResource()
    return path === null ? toOtlpString(spans, resource) : writeOtlpFile(path, spans, resource)
  }

  async servePrometheus(options: PrometheusOptions): Promise<PrometheusEndpoint> {
    const { servePrometheus } = await import('./metrics/prometheus-endpoint.ts')
    const { source } = this.#parts
    const parts = { source, groups: this.#groups, scheduler: this.#scheduler }
    const endpoint = await servePrometheus(options, parts)
    this.#endpoints.add(endpoint)
    return endpoint
  }

  /** Whether every published event has been dispatched. */
  get isDrained(): boolean {
    return this.#bus.isEmpty
  }

  /** Dispatches everything published so far, but not what subscribers emit meanwhile. */
  drainOnce(): void {
    this.#bus.endStart()
    this.#bus.drain()
  }

  drain(): void {
    this.#bus.drainFully()
  }

  async flush(): Promise<void> {
    // If a subscriber calls flush inside a drain, the rest of its batch is not written yet.
    const drained = this.#bus.drained()
    if (drained !== null) await drained
    this.drain()
    await this.#recorder?.flush()
  }

  async close(): Promise<void> {
    for (const remove of this.#removals) remove()
    const { stopDeadlineMs } = this.#parts.options
    await Promise.all([
      this.#recorder?.close().then(this.#removeExitCallback),
      this.mirror.close(stopDeadlineMs),
      this.#readers?.close(stopDeadlineMs),
      ...[...this.#endpoints].map((endpoint) => endpoint.close()),
    ])
  }

  /**
   * Records queued events when the process exits. Otherwise the events of the last event loop turn
   * would be missing from the file.
   */
  #recordAtExit(): () => void {
    const recorder = this.#recorder
    if (recorder === null) return () => {}
    return atExit(() => {
      this.#bus.recordAtExit()
      recorder.writeAtExit()
    })
  }

  #readResource(): Resource {
    this.#resource ??= createResource(this.#parts.options.resource)
    return this.#resource
  }

  /** Called last, because a bound reader starts immediately. Closes the file if binding fails. */
  #bindReaders(): MetricReaders | null {
    const { readers } = this.#parts
    if (readers === null) return null
    const { clock, log, metricReaders, taskLabels } = this.#parts.options
    const groups = taskLabels ? null : this.#groups
    const { source } = this.#parts
    const parts = { source, groups, scheduler: this.#scheduler, clock, log }
    try {
      return new readers.MetricReaders(metricReaders, { ...parts, resource: this.#readResource() })
    } catch (error) {
      void this.#recorder?.close()
      throw error
    }
  }

  #createMirror(): SpanMirror {
    const { spanProcessors, clock, log } = this.#parts.options
    const { mirrors } = this.#parts
    if (mirrors === null) return nullMirror
    return new mirrors.OtelSpanMirror({
      traceId: this.#traceId,
      resource: this.#readResource(),
      processors: spanProcessors,
      clock,
      log,
    })
  }

  #createRecorder(): Recorder | null {
    const { options, source, record } = this.#parts
    const { checkpointPath, clock, log, sessionId, durability } = options
    if (checkpointPath === null) return null
    const common = { session_id: sessionId, backend: sessionBackend }
    let results: ResultsFile | null = null
    const writer = CheckpointWriter.open({
      folder: checkpointPath,
      sessionId,
      clock,
      log,
      durability,
      lock: record.lock,
      beforeWrite: () => results?.write(),
      onDegraded: (facts) =>
        this.publish(stampEvent(CheckpointDegraded, clock, { ...common, ...facts })),
      onRecovered: (facts) =>
        this.publish(stampEvent(CheckpointRecovered, clock, { ...common, ...facts })),
    })
    results = this.#createResults(writer)
    return new Recorder({
      writer,
      results,
      clock,
      traceId: this.#traceId,
      toSpan: (task) => this.book.toSpan(task),
      readMetrics: () => readMetrics(source),
      metricSeconds: options.checkpointSeconds,
    })
  }

  /** Removes the record if the file for its values cannot be created. */
  #createResults(writer: CheckpointWriter): ResultsFile | null {
    const { options, record } = this.#parts
    const { log, durability } = options
    if (record.maxValueBytes === null) return null
    const id = recordIdOf({ trace_id: this.#traceId, span_id: this.book.sessionSpanId })
    const parts = { record: writer.path, id, files: nodeFiles, log, durability }
    try {
      return new ResultsFile({ ...parts, maxBytes: record.maxValueBytes })
    } catch (error) {
      void writer.close()
      removeRecord(writer.path)
      throw error
    }
  }
}
