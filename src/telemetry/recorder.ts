/**
 * Writes dispatched events to the checkpoint: complete lines, in the same turn of the event loop.
 */

import { eventLine, type FinishedSpan, metricLine, spanLine } from '../checkpoint/format.ts'
import type { ResultsFile } from '../checkpoint/results-file.ts'
import type { CheckpointWriter } from '../checkpoint/writer.ts'
import type { BaseEvent } from '../events/event.ts'
import { toJsonObject } from '../foundation/json-value.ts'
import type { Clock } from '../foundation/clock.ts'
import type { Consumer } from './bus.ts'
import { TaskRow } from './metrics/task-row.ts'
import type { Envelope } from './spans/envelope.ts'

export interface RecorderParts {
  readonly writer: CheckpointWriter
  /** Written before the lines that refer to it; `null` if values are not stored. */
  readonly results: ResultsFile | null
  readonly clock: Clock
  readonly traceId: string
  readonly toSpan: (record: TaskRow) => FinishedSpan
  readonly readMetrics: () => Readonly<Record<string, number>>
  /** Seconds between metric lines; `null` for a single line at the end. */
  readonly metricSeconds: number | null
}

export class Recorder implements Consumer {
  readonly #parts: RecorderParts
  #stopTimer: () => void = () => {}

  constructor(parts: RecorderParts) {
    this.#parts = parts
    this.#armTimer()
  }

  get path(): string {
    return this.#parts.writer.path
  }

  /** The number of lines that were dropped and will never be written. */
  get linesLost(): number {
    return this.#parts.writer.linesLost
  }

  accept({ event, spanId, ended, traceId }: Envelope): void {
    const { writer, toSpan } = this.#parts
    if (event !== null) writer.append(lineOf(event, traceId ?? this.#parts.traceId, spanId))
    if (ended !== null) writer.append(lineOfSpan(ended instanceof TaskRow ? toSpan(ended) : ended))
  }

  /**
   * Stores the value of a task next to the record. Must be called before the task's terminal event.
   */
  keepValue(uid: string, value: unknown): void {
    this.#parts.results?.append(uid, value)
  }

  endOfBatch(): void {
    this.#parts.writer.write()
  }

  async flush(): Promise<void> {
    const { writer, results } = this.#parts
    await writer.flush()
    await results?.flush()
  }

  /** Writes even if a failed write is waiting for its retry, because there is no later chance. */
  writeAtExit(): void {
    this.#parts.writer.write('now')
    this.#parts.writer.removeIfRefused()
  }

  /** Writes the last metric line and closes the files. */
  async close(): Promise<void> {
    const { writer, results } = this.#parts
    this.#stopTimer()
    this.#writeMetrics()
    await writer.close()
    await results?.close()
  }

  #armTimer(): void {
    const { clock, metricSeconds } = this.#parts
    if (metricSeconds === null) return
    const tick = (): void => {
      this.#writeMetrics()
      this.#armTimer()
    }
    this.#stopTimer = clock.after(metricSeconds * 1000, tick, { background: true })
  }

  #writeMetrics(): void {
    const { writer, clock, readMetrics } = this.#parts
    writer.append(metricLine(clock.now(), readMetrics()))
    writer.write()
  }
}

/** An instance of an application's class may hold values that JSON cannot represent. */
function lineOf(event: BaseEvent, traceId: string, spanId: string): string {
  try {
    return eventLine(event, traceId, spanId)
  } catch {
    return eventLine(toJsonObject(event) as unknown as BaseEvent, traceId, spanId)
  }
}

/**
 * A span with many annotations may exceed V8's maximum string length. It is then written without
 * them.
 */
function lineOfSpan(span: FinishedSpan): string {
  try {
    return spanLine(span)
  } catch {
    return spanLine({ ...span, attributes: { truncated: true }, events: [] })
  }
}
