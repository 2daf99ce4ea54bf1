/** Running telemetry, from `emit` through the bus to the checkpoint, processors and subscribers. */

import { AsyncLocalStorage } from 'node:async_hooks'
import type { FinishedSpan } from '../checkpoint/format.ts'
import { systemFiles } from '../checkpoint/files.ts'
import { removeRecord } from '../checkpoint/record-names.ts'
import { recordIdOf, ResultsFile } from '../checkpoint/results-file.ts'
import { CheckpointWriter } from '../checkpoint/writer.ts'
import { type BaseEvent, stampEvent } from '../events/event.ts'
import type { MetricValues } from '../events/measurement.ts'
import type { TaskChange } from '../events/sink.ts'
import { createTaskEvent } from '../events/vocabulary.ts'
import { CheckpointDegraded, CheckpointRecovered } from '../events/library-events.ts'
import type { DerivedIds } from '../events/derived-ids.ts'
import { newTraceId } from '../foundation/ids.ts'
import { wrapTasks } from '../foundation/task-context.ts'
import { atExit } from '../runtime/at-exit.ts'
import { StepScheduler } from '../runtime/turn-budget.ts'
import { stageOf } from '../views/lifecycle.ts'
import { noStep } from '../views/panel.ts'
import type { TelemetryCost } from '../views/panels/run.ts'
import { isNodeEvent, resources } from '../views/panels/resources.ts'
import { EventBus } from './bus.ts'
import type { Enrichers } from './spans/enrichers.ts'
import { type MetricSource, readMetrics } from './metrics/metrics.ts'
import type { PrometheusEndpoint, PrometheusOptions } from './metrics/prometheus-endpoint.ts'
import { TaskGroups } from './metrics/task-groups.ts'
import type { TaskEventFields } from './metrics/task-table.ts'
import type { RecordParts, ResolvedTelemetryOptions } from './options.ts'
import type { MetricReaders } from './otel/otel-metrics.ts'
import { acquireContextManager, OtelActiveSpans } from './otel/otel-context.ts'
import type { OtelSpanMirror } from './otel/otel-mirror.ts'
import { createResource, type Resource } from './otel/otel.ts'
import { toOtlpString, writeOtlpFile } from './otel/otlp.ts'
import { CostMeter } from './cost-meter.ts'
import { Recorder } from './recorder.ts'
import { startRecordThread } from './record-thread.ts'
import { sessionBackend } from './spans/finished-span.ts'
import { nullMirror, type SpanMirror } from './spans/span-mirror.ts'
import { SpanRegistry } from './spans/span-registry.ts'
import type { Subscribers } from './subscribers.ts'

const collectMsPerTurn = 5
const noRecordCost = { inPlaceWrites: 0, bytesWritten: 0, threadCpuSeconds: 0 }

export interface PipelineParts {
  readonly options: ResolvedTelemetryOptions
  readonly record: RecordParts
  readonly source: MetricSource
  readonly enrichers: Enrichers
  readonly subscribers: Subscribers
  /** The modules for span processors and metric readers, loaded only if there are any. */
  readonly mirrors: { readonly OtelSpanMirror: typeof OtelSpanMirror } | null
  readonly readers: { readonly MetricReaders: typeof MetricReaders } | null
}

/** The constructor opens the checkpoint, so that an unwritable folder is reported immediately. */
export class Pipeline {
  readonly spans: SpanRegistry
  readonly mirror: SpanMirror
  #resource: Resource | null = null
  readonly #traceId: string
  readonly #sessionId: string
  readonly #ids: DerivedIds
  readonly #cost: CostMeter
  #eventNumber = 0
  readonly #cleanups: readonly (() => void)[]
  readonly #parts: PipelineParts
  readonly #bus: EventBus
  #recorder: Recorder | null
  /** The final values of the recorder, which `close()` removes to free its memory. */
  #closedRecord: Pick<Recorder, 'path' | 'linesLost' | 'cost'> | null = null
  #isRecording = false
  readonly #notices: BaseEvent[] = []
  readonly #readers: MetricReaders | null
  readonly #scheduler: StepScheduler
  readonly #groups: TaskGroups
  readonly #endpoints = new Set<PrometheusEndpoint>()
  #removeExitCallback: () => void

  constructor(parts: PipelineParts) {
    const { options, source, enrichers, subscribers } = parts
    const { clock, log, sessionId } = options
    this.#parts = parts
    this.#sessionId = sessionId
    this.#ids = source.tasks.ids
    this.#cost = new CostMeter(clock)
    const active = new OtelActiveSpans(clock, log)
    const application = active.activeIds()
    const parent = options.continueTrace ? application : null
    this.#traceId = parent?.traceId ?? newTraceId()
    this.mirror = this.#createMirror()
    this.spans = new SpanRegistry({
      sessionId,
      traceId: this.#traceId,
      parent,
      link: parent === null ? application : null,
      active,
      tasks: source.tasks,
      enrichers,
      mirror: this.mirror,
    })
    this.#scheduler = new StepScheduler(clock, collectMsPerTurn)
    this.#groups = new TaskGroups(sessionId, source.tasks, this.#scheduler)
    this.#recorder = this.#createRecorder()
    this.#bus = new EventBus({
      clock,
      log,
      subscribers,
      inContext: AsyncLocalStorage.snapshot(),
    })
    this.#readers = this.#bindReaders()
    const { spans } = this
    this.#cleanups = [wrapTasks((uid, run) => spans.runInTask(uid, run)), acquireContextManager()]
    this.#removeExitCallback = this.#recordAtExit()
  }

  get checkpointFile(): string | null {
    return this.#recordFacts?.path ?? null
  }

  get lostLines(): number {
    return this.#recordFacts?.linesLost ?? 0
  }

  publish(event: BaseEvent): void {
    const { event_type: type, task_id: uid } = event
    if (isNodeEvent(type)) resources.take(this.#parts.source.nodes, event, noStep)
    const isMeasured = this.#cost.begin()
    this.#isRecording = true
    if (uid !== null && stageOf(type) !== 0)
      this.#addTaskEvent(event as BaseEvent & TaskEventFields)
    else this.#addEvent(event)
    if (this.#bus.isWatched) this.#bus.publish(event)
    this.#endRecording()
    if (isMeasured) this.#cost.end()
  }

  /** Publishes a lifecycle event. Creates the event object only if it is needed. */
  publishChange(change: TaskChange): void {
    const isMeasured = this.#cost.begin()
    const number = ++this.#eventNumber
    const isWatched = this.#bus.isWatched || this.#isEnriched(change)
    const event = isWatched ? this.#createEvent(change, number) : null
    const { record, isEnd } = this.spans.addTaskEvent(change, change.holder, event)
    const recorder = this.#recorder
    this.#isRecording = true
    if (recorder !== null) {
      if (!recorder.addChange(change, number, record.spanNumber))
        recorder.addEvent(event ?? this.#createEvent(change, number), this.#traceId, record.spanId)
      if (isEnd) recorder.addTaskSpan(record, change.emit_time)
    }
    if (event !== null && this.#bus.isWatched) this.#bus.publish(event)
    this.#endRecording()
    if (isMeasured) this.#cost.end()
  }

  #isEnriched({ event_type: type }: TaskChange): boolean {
    return type === 'TaskCreated' && this.#parts.enrichers.hasAny
  }

  #createEvent(change: TaskChange, number: number): BaseEvent {
    return createTaskEvent(change, this.#sessionId, this.#ids.eventId(number))
  }

  get cost(): TelemetryCost {
    const { inPlaceWrites, bytesWritten, threadCpuSeconds } =
      this.#recordFacts?.cost ?? noRecordCost
    return {
      main_cpu_seconds: this.#cost.seconds,
      thread_cpu_seconds: threadCpuSeconds,
      in_place_writes: inPlaceWrites,
      bytes_written: bytesWritten,
      spill_bytes: this.#parts.source.tasks.spilledBytes + this.spans.spilledBytes,
    }
  }

  keepValue(uid: string, value: unknown): void {
    this.#recorder?.keepValue(uid, value)
  }

  publishSpan(span: FinishedSpan): void {
    this.#recorder?.addSpan(span, this.#parts.options.clock.now())
  }

  exportAsOtlp(path: string | null): string | Promise<void> {
    const spans = this.spans.finished()
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

  async collectMetrics(): Promise<MetricValues> {
    const { collectSessionMetrics } = await import('./metrics/prometheus-endpoint.ts')
    return await collectSessionMetrics({ source: this.#parts.source, groups: this.#groups })
  }

  get isDrained(): boolean {
    return this.#bus.isEmpty
  }

  /** Dispatches everything published so far, but not what subscribers emit during the dispatch. */
  drainOnce(): void {
    this.#bus.endStart()
    this.#bus.drain()
    this.#recorder?.write()
  }

  drain(): void {
    this.#bus.drainFully()
    this.#recorder?.write()
  }

  /** Retries a failed write, so that CheckpointRecovered is recorded before SessionEnded. */
  retryWrite(): void {
    this.#recorder?.write('now')
  }

  async flush(): Promise<void> {
    // If a subscriber has called `flush` during a drain, waits for the rest of that drain.
    const drained = this.#bus.whenDrained()
    if (drained !== null) await drained
    this.#bus.drainFully()
    await this.#recorder?.flush()
  }

  async close(): Promise<void> {
    for (const remove of this.#cleanups) remove()
    const { stopDeadlineMs } = this.#parts.options
    await Promise.all([
      this.#closeRecorder(),
      this.mirror.close(stopDeadlineMs),
      this.#readers?.close(stopDeadlineMs),
      ...[...this.#endpoints].map((endpoint) => endpoint.close()),
    ])
  }

  #addTaskEvent(event: BaseEvent & TaskEventFields): void {
    const { record, isEnd } = this.spans.addTaskEvent(event, null, event)
    this.#recorder?.addEvent(event, this.#traceId, record.spanId)
    if (isEnd) this.#recorder?.addTaskSpan(record, event.emit_time)
  }

  #addEvent(event: BaseEvent): void {
    const { traceId, spanId, ended } = this.spans.addEvent(event)
    this.#recorder?.addEvent(event, traceId, spanId)
    if (ended !== null) this.#recorder?.addSpan(ended, event.emit_time)
  }

  get #recordFacts(): Pick<Recorder, 'path' | 'linesLost' | 'cost'> | null {
    return this.#recorder ?? this.#closedRecord
  }

  async #closeRecorder(): Promise<void> {
    const recorder = this.#recorder
    if (recorder === null) return
    await recorder.close()
    this.#removeExitCallback()
    this.#removeExitCallback = () => {}
    const { path, linesLost, cost } = recorder
    this.#closedRecord = { path, linesLost, cost }
    this.#recorder = null
  }

  /**
   * Publishes an event about the record itself. If another event is being recorded, publishes after
   * that event, so that subscribers see the same order as the file has.
   */
  #publishNotice(event: BaseEvent): void {
    if (this.#isRecording) this.#notices.push(event)
    else this.publish(event)
  }

  #endRecording(): void {
    this.#isRecording = false
    if (this.#notices.length === 0) return
    for (const notice of this.#notices.splice(0)) this.publish(notice)
  }

  #recordAtExit(): () => void {
    const recorder = this.#recorder
    if (recorder === null) return () => {}
    return atExit(() => recorder.writeAtExit())
  }

  #readResource(): Resource {
    this.#resource ??= createResource(this.#parts.options.resource)
    return this.#resource
  }

  /**
   * Binds the metric readers. Called last, because a reader starts as soon as it is bound. Closes
   * the record if binding fails.
   */
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
      ids: source.tasks.ids,
      startThread: startRecordThread,
      ...record.writer,
      ...(record.maxValueBytes === null ? {} : { beforeWrite: () => results?.write() }),
      onDegraded: (facts) =>
        this.#publishNotice(stampEvent(CheckpointDegraded, clock, { ...common, ...facts })),
      onRecovered: (facts) =>
        this.#publishNotice(stampEvent(CheckpointRecovered, clock, { ...common, ...facts })),
    })
    results = this.#createResults(writer)
    return new Recorder({
      writer,
      results,
      clock,
      sessionId,
      traceId: this.#traceId,
      ids: source.tasks.ids,
      toSpan: (task) => this.spans.toSpan(task),
      readMetrics: () => readMetrics(source),
      metricSeconds: options.checkpointSeconds,
    })
  }

  /** Creates the file for task values. If that fails, the record is removed. */
  #createResults(writer: CheckpointWriter): ResultsFile | null {
    const { options, record } = this.#parts
    const { log, durability } = options
    if (record.maxValueBytes === null) return null
    const id = recordIdOf({ trace_id: this.#traceId, span_id: this.spans.sessionSpanId })
    const parts = { record: writer.path, id, files: systemFiles, log, durability }
    try {
      return new ResultsFile({ ...parts, maxBytes: record.maxValueBytes })
    } catch (error) {
      void writer.close()
      removeRecord(writer.path)
      throw error
    }
  }
}
