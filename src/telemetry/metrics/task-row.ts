/** The data of one task in telemetry: small, but sufficient for its span and its metric points. */

import type { SpanAnnotation } from '../../checkpoint/format.ts'
import { sharedAttributes, type TaskChange } from '../../events/sink.ts'
import type { DerivedIds } from '../../events/derived-ids.ts'
import { emptyAttributes, type JsonObject } from '../../foundation/json-value.ts'
import type { Indexed } from '../../runtime/indexed-set.ts'
import { hasStarted, stages } from '../../views/lifecycle.ts'

export type SpanStatus = 'completed' | 'failed' | 'canceled'

/** A time that is not known yet. Not 0, which is a valid time. */
const unknownTime = Number.NaN

export class TaskRow implements Indexed {
  setIndex = -1
  /** The index of an open task in the task table. */
  slot = -1
  readonly uid: string
  readonly spanNumber: number
  readonly startTime: number
  readonly #ids: DerivedIds
  backend = ''
  executable = ''
  taskType = ''
  /** The lifecycle stages that the task has passed, as bits of `stages`. */
  passed = 0
  queuedTime = unknownTime
  /** TaskQueued's attributes as strings, without those that are attributes of the span. */
  queuedAttributes: JsonObject = emptyAttributes
  startedTime = unknownTime
  /**
   * TaskStarted's attributes as strings, such as the worker, without those that are attributes of
   * the span.
   */
  startedAttributes: JsonObject = emptyAttributes
  /** The end time of the span: when the task ended, or when telemetry stopped. */
  endTime = unknownTime
  durationSeconds = 0
  errorType: string | null = null
  /** The workflow that the task belongs to; `null` if there is none. */
  workflowId: string | null = null
  /** The span of the workflow. If it is `null`, the session's span is the parent. */
  parentSpanId: string | null = null
  /** Attributes from enrichers, span processors and the task's code; `null` for most tasks. */
  enriched: JsonObject | null = null
  annotations: SpanAnnotation[] | null = null

  constructor(uid: string, spanNumber: number, startTime: number, ids: DerivedIds) {
    this.uid = uid
    this.spanNumber = spanNumber
    this.startTime = startTime
    this.#ids = ids
  }

  get spanId(): string {
    return this.#ids.spanId(this.spanNumber)
  }

  get wasQueued(): boolean {
    return (this.passed & stages.queued) !== 0
  }

  get wasRunning(): boolean {
    return hasStarted(this.passed)
  }

  get queueSeconds(): number | null {
    const seconds = this.startedTime - this.queuedTime
    return Number.isNaN(seconds) ? null : Math.max(0, seconds)
  }

  get milliseconds(): number {
    return Math.max(0, (this.endTime - this.startTime) * 1000)
  }

  /** How the task ended; `null` while it is open, or if telemetry stopped before it ended. */
  get status(): SpanStatus | null {
    if ((this.passed & stages.completed) !== 0) return 'completed'
    if ((this.passed & stages.failed) !== 0) return 'failed'
    return (this.passed & stages.canceled) === 0 ? null : 'canceled'
  }

  get hasEnded(): boolean {
    return !Number.isNaN(this.endTime)
  }

  describe(event: Pick<TaskChange, 'backend' | 'attributes'>): void {
    if (event.backend !== '') this.backend = event.backend
    const { executable, task_type: taskType } = event.attributes
    if (typeof executable === 'string') this.executable = executable
    if (typeof taskType === 'string') this.taskType = taskType
  }

  labelsIn(sessionId: string): Record<string, string> {
    return {
      session_id: sessionId,
      backend: this.backend,
      task_id: this.uid,
      executable: this.executable,
      task_type: this.taskType,
    }
  }

  enrich(added: JsonObject | null): void {
    if (added !== null) this.enriched = { ...this.enriched, ...added }
  }

  annotate(annotation: SpanAnnotation): void {
    this.annotations ??= []
    this.annotations.push(annotation)
  }
}

/** Caches results of `extraAttributes`, because many tasks share one attributes object. */
const extraCache = new Map<JsonObject, JsonObject>()
const maxCached = 64

const spanKeys = new Set(['executable', 'task_type', 'workflow_id'])

/**
 * Returns an event's extra attributes as strings. Most events have only `executable` and
 * `task_type`, which the span already has.
 */
export function extraAttributes(event: {
  readonly attributes: JsonObject
  readonly own?: JsonObject | null
}): JsonObject {
  const { attributes, own = null } = event
  if (own !== null) return selectExtra({ ...attributes, ...own })
  const known = extraCache.get(attributes)
  if (known !== undefined) return known
  const extra = selectExtra(attributes)
  if (sharedAttributes.has(attributes)) sharedAttributes.add(extra)
  if (extraCache.size === maxCached) extraCache.clear()
  extraCache.set(attributes, extra)
  return extra
}

function selectExtra(attributes: JsonObject): JsonObject {
  for (const key in attributes) {
    if (spanKeys.has(key)) continue
    const beyond = Object.entries(attributes).filter(([name]) => !spanKeys.has(name))
    return toStrings(Object.fromEntries(beyond))
  }
  return emptyAttributes
}

/** Converts the attributes of a span event to strings, as the specification requires. */
export function toStrings(attributes: JsonObject): JsonObject {
  if (attributes === emptyAttributes) return attributes
  const strings: Record<string, string> = {}
  for (const [key, value] of Object.entries(attributes)) {
    strings[key] = typeof value === 'string' ? value : JSON.stringify(value)
  }
  return strings
}
