/** The spans of running code, and the interface to the active span in OpenTelemetry's context. */

import type { SpanAnnotation } from '../../checkpoint/format.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import { maskSecretsIn } from '../../foundation/secrets.ts'
import type { TaskRow } from '../metrics/task-row.ts'
import { reservedKeys } from './enrichers.ts'
import type { SpanIds, SpanMirror } from './span-mirror.ts'
import type { ScopeSpan } from './span-scope.ts'

/** A span of tutti while its code runs. Its methods do nothing after the span has ended. */
export interface LiveSpan extends SpanIds {
  /** The registry that the span belongs to. A process may have several registries. */
  readonly owner: object
  annotate(annotation: SpanAnnotation): void
  setAttributes(attributes: object): void
}

/** An active span of the application itself. */
export interface ForeignSpan extends SpanIds {
  readonly owner: null
  annotate(annotation: SpanAnnotation): void
}

export interface ActiveSpans {
  /** The innermost active span, ignoring spans of other owners. */
  find(owner: object): LiveSpan | ForeignSpan | null
  /** Runs the code of a task inside its span; outer spans are not visible to the code. */
  runTask<T>(span: LiveSpan, callback: () => T): T
  runScope<T>(span: LiveSpan, callback: () => T): T
}

export class LiveTask implements LiveSpan {
  readonly owner: object
  readonly traceId: string
  readonly #record: TaskRow
  readonly #mirror: SpanMirror

  constructor(owner: object, traceId: string, record: TaskRow, mirror: SpanMirror) {
    this.owner = owner
    this.traceId = traceId
    this.#record = record
    this.#mirror = mirror
  }

  get spanId(): string {
    return this.#record.spanId
  }

  annotate(annotation: SpanAnnotation): void {
    if (this.#record.hasEnded) return
    this.#record.annotate(annotation)
    this.#mirror.annotated(this, () => annotation)
  }

  setAttributes(attributes: object): void {
    if (this.#record.hasEnded) return
    const ownAttributes = Object.entries(attributes).filter(([name]) => !reservedKeys.has(name))
    this.#record.enriched = withAttributes(this.#record.enriched, Object.fromEntries(ownAttributes))
  }
}

export class LiveScope implements LiveSpan {
  readonly owner: object
  readonly #scope: ScopeSpan
  readonly #mirror: SpanMirror

  constructor(owner: object, scope: ScopeSpan, mirror: SpanMirror) {
    this.owner = owner
    this.#scope = scope
    this.#mirror = mirror
  }

  get traceId(): string {
    return this.#scope.traceId
  }

  get spanId(): string {
    return this.#scope.spanId
  }

  annotate(annotation: SpanAnnotation): void {
    if (this.#scope.hasEnded) return
    this.#scope.annotations.push(annotation)
    this.#mirror.annotated(this, () => annotation)
  }

  setAttributes(attributes: object): void {
    if (this.#scope.hasEnded) return
    this.#scope.attributes = withAttributes(this.#scope.attributes, attributes)
  }
}

const withAttributes = (known: JsonObject | null, added: object): JsonObject =>
  maskSecretsIn(toJsonObject({ ...known, ...added }))
