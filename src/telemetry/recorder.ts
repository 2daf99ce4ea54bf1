/** Puts events and spans into the record when they are emitted. */

import { eventLine, type FinishedSpan, metricLine, spanLine } from '../checkpoint/format.ts'
import type { ResultsFile } from '../checkpoint/results-file.ts'
import type { CheckpointWriter } from '../checkpoint/writer.ts'
import { isTemplateTime } from '../checkpoint/writing/template.ts'
import type { BaseEvent } from '../events/event.ts'
import { allAttributes, type TaskChange } from '../events/sink.ts'
import type { Clock } from '../foundation/clock.ts'
import type { DerivedIds } from '../events/derived-ids.ts'
import { emptyAttributes, type JsonObject, toJsonObject } from '../foundation/json-value.ts'
import type { TaskRow } from './metrics/task-row.ts'
import { noTemplate, RecordTemplates } from './record-templates.ts'
import { withoutDetails } from './spans/finished-span.ts'

export interface RecorderParts {
  readonly writer: CheckpointWriter
  /**
   * The file for task values, which is written before the lines that refer to the values; `null` if
   * values are not stored.
   */
  readonly results: ResultsFile | null
  readonly clock: Clock
  readonly sessionId: string
  readonly traceId: string
  readonly ids: DerivedIds
  readonly toSpan: (record: TaskRow) => FinishedSpan
  readonly readMetrics: () => Readonly<Record<string, number>>
  /** Seconds between metric lines; `null` for a single line at the end. */
  readonly metricSeconds: number | null
}

export class Recorder {
  readonly #parts: RecorderParts
  readonly #writer: CheckpointWriter
  readonly #templates: RecordTemplates
  /** Reused for each line, as its content is copied. */
  readonly #frame = { template: 0, values: new Float64Array(6), count: 0, uid: '', text: '' }
  #isScheduled = false
  #stopTimer: () => void = () => {}

  constructor(parts: RecorderParts) {
    this.#parts = parts
    this.#writer = parts.writer
    this.#templates = new RecordTemplates(parts)
    this.#startTimer()
  }

  get path(): string {
    return this.#writer.path
  }

  get linesLost(): number {
    return this.#writer.linesLost
  }

  /** The cost of writing the record. */
  get cost(): { inPlaceWrites: number; bytesWritten: number; threadCpuSeconds: number } {
    const { inPlaceWrites, bytesWritten, threadCpuSeconds } = this.#writer
    return { inPlaceWrites, bytesWritten, threadCpuSeconds }
  }

  /** Records a lifecycle event by a template. Returns `false` if that is not possible. */
  addChange(change: TaskChange, eventNumber: number, spanNumber: number): boolean {
    const { own } = change
    const { template, attributes } = this.#templates.eventTemplateOf(change)
    const { event_time: happened, emit_time: emitted, duration_seconds: seconds } = change
    if (template === noTemplate || !isTemplateTime(happened) || !isTemplateTime(emitted))
      return false
    if (!Number.isFinite(seconds)) return false
    const frame = this.#frame
    const { values } = frame
    values[0] = eventNumber
    values[1] = spanNumber
    values[2] = happened
    values[3] = emitted
    values[4] = seconds
    frame.template = template
    frame.count = 5
    frame.uid = change.task_id
    if (attributes === emptyAttributes) frame.text = membersOf(allAttributes(change), '')
    else frame.text = own === null ? '' : membersOf(own, ',')
    if (!this.#writer.appendValues(frame)) return false
    this.#onFrameAdded(emitted)
    return true
  }

  addEvent(event: BaseEvent, traceId: string, spanId: string): void {
    this.#writer.append(toEventLine(event, traceId, spanId))
    this.#onFrameAdded(event.emit_time)
  }

  addTaskSpan(record: TaskRow, now: number): void {
    if (this.#addByTemplate(record)) this.#onFrameAdded(now)
    else this.addSpan(this.#parts.toSpan(record), now)
  }

  addSpan(span: FinishedSpan, now: number): void {
    this.#writer.append(toSpanLine(span))
    this.#onFrameAdded(now)
  }

  keepValue(uid: string, value: unknown): void {
    this.#parts.results?.append(uid, value)
  }

  /** Writes everything synchronously. `now`: even while a failed write waits for its retry. */
  write(when: 'if due' | 'now' = 'if due'): void {
    this.#writer.writeInPlace(when)
  }

  async flush(): Promise<void> {
    await this.#writer.flush()
    await this.#parts.results?.flush()
  }

  /** Writes even if a failed write is waiting for its retry, because there is no later chance. */
  writeAtExit(): void {
    this.#writer.writeAtExit()
  }

  async close(): Promise<void> {
    this.#stopTimer()
    this.#writeMetrics()
    await this.#writer.close()
    await this.#parts.results?.close()
  }

  #addByTemplate(record: TaskRow): boolean {
    const { startTime, endTime, queuedTime, startedTime } = record
    const template = this.#templates.spanTemplateOf(record)
    if (template === noTemplate || !isTemplateTime(startTime) || !isTemplateTime(endTime))
      return false
    if (record.wasQueued && !isTemplateTime(queuedTime)) return false
    if (record.wasRunning && !isTemplateTime(startedTime)) return false
    const frame = this.#frame
    const { values } = frame
    values[0] = record.spanNumber
    values[1] = startTime
    values[2] = endTime
    values[3] = record.milliseconds
    values[4] = queuedTime
    values[5] = startedTime
    frame.template = template
    frame.count = 6
    frame.uid = record.uid
    frame.text = ''
    return this.#writer.appendValues(frame)
  }

  #onFrameAdded(now: number): void {
    this.#writer.checkAge(now)
    if (this.#isScheduled || !this.#writer.needsWrite) return
    this.#isScheduled = true
    this.#parts.clock.nextTurn(() => {
      this.#isScheduled = false
      this.#writer.write()
    })
  }

  #startTimer(): void {
    const { clock, metricSeconds } = this.#parts
    if (metricSeconds === null) return
    const tick = (): void => {
      this.#writeMetrics()
      this.#startTimer()
    }
    this.#stopTimer = clock.after(metricSeconds * 1000, tick, { background: true })
  }

  #writeMetrics(): void {
    const { clock, readMetrics } = this.#parts
    this.#writer.append(metricLine(clock.now(), readMetrics()))
    this.#writer.write()
  }
}

/** Returns the object's members as JSON text after `before`, or an empty text for no members. */
function membersOf(attributes: JsonObject, before: string): string {
  const members = JSON.stringify(attributes).slice(1, -1)
  return members === '' ? '' : `${before}${members}`
}

/**
 * Formats an event. If an application's event has values that JSON cannot represent, converts them.
 */
function toEventLine(event: BaseEvent, traceId: string, spanId: string): string {
  try {
    return eventLine(event, traceId, spanId)
  } catch {
    return eventLine(toJsonObject(event) as unknown as BaseEvent, traceId, spanId)
  }
}

/**
 * If the line would exceed V8's maximum string length, replaces the attributes with `truncated:
 * true` and omits the events.
 */
function toSpanLine(span: FinishedSpan): string {
  try {
    return spanLine(span)
  } catch {
    return spanLine(withoutDetails(span))
  }
}
