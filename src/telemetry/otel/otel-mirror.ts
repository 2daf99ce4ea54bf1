/** SDK spans for the attached span processors. Loaded only if there are span processors. */

import {
  type Attributes,
  type Context,
  ROOT_CONTEXT,
  type Span,
  trace,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api'
import { type ReadableSpan, type SpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { type JsonObject, toJsonObject } from '../../foundation/json-value.ts'
import type { Log } from '../../foundation/log.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { maskSecretsIn } from '../../foundation/secrets.ts'
import { version } from '../../foundation/version.ts'
import type { SpanIds, SpanMirror, SpanRef, StartedSpan } from '../spans/span-mirror.ts'
import {
  instrumentationScope,
  type Resource,
  toHrTime,
  toLinks,
  toOtelAttributes,
  toStatus,
} from './otel.ts'

/**
 * No limits, so that exporters get the same spans as `exportAsOtlp`, which are in memory anyway.
 */
const noLimits = {
  attributeCountLimit: Infinity,
  attributeValueLengthLimit: Infinity,
  eventCountLimit: Infinity,
  linkCountLimit: Infinity,
  attributePerEventCountLimit: Infinity,
  attributePerLinkCountLimit: Infinity,
}

export interface MirrorParts {
  readonly traceId: string
  readonly resource: Resource
  readonly processors: readonly SpanProcessor[]
  readonly clock: Clock
  readonly log: Log
}

/** Creates an SDK span for each span of telemetry, with the same ids and times. */
export class OtelSpanMirror implements SpanMirror {
  readonly #parts: MirrorParts
  readonly #provider: TracerProvider
  readonly #tracer: Tracer
  readonly #openSpans = new Map<string, Span>()
  #nextSpanId = ''
  #hasWarned = false

  constructor(parts: MirrorParts) {
    this.#parts = parts
    this.#provider = new TracerProvider({
      resource: parts.resource,
      spanProcessors: parts.processors.map((processor) => this.#isolate(processor)),
      idGenerator: {
        generateTraceId: () => parts.traceId,
        generateSpanId: () => this.#nextSpanId,
      },
      spanLimits: noLimits,
    })
    this.#tracer = this.#provider.getTracer(instrumentationScope.name, version)
  }

  started({ spanId }: SpanRef, span: () => StartedSpan): JsonObject | null {
    return this.#guard(() => {
      const { name, time, parent, attributes } = span()
      this.#nextSpanId = spanId
      const options = { startTime: toHrTime(time), attributes: toOtelAttributes(attributes) }
      const started = this.#tracer.startSpan(name, options, this.#contextOf(parent))
      this.#openSpans.set(spanId, started)
      return findAdded(started, options.attributes)
    })
  }

  annotated({ spanId }: SpanRef, annotation: Parameters<SpanMirror['annotated']>[1]): void {
    this.#guard(() => {
      const { name, time, attributes } = annotation()
      this.#openSpans.get(spanId)?.addEvent(name, toOtelAttributes(attributes), toHrTime(time))
    })
  }

  ended({ spanId }: SpanRef, finished: () => FinishedSpan): void {
    this.#guard(() => {
      const open = this.#openSpans.get(spanId)
      if (open === undefined) return
      this.#openSpans.delete(spanId)
      const span = finished()
      open.setAttributes(toOtelAttributes(span.attributes))
      open.setStatus(toStatus(span))
      open.addLinks(toLinks(span))
      open.end(toHrTime(span.end_time))
    })
  }

  async close(deadlineMs: number): Promise<void> {
    const { processors } = this.#parts
    await Promise.all(processors.map((processor) => this.#closeOne(processor, deadlineMs)))
  }

  async #closeOne(processor: SpanProcessor, deadlineMs: number): Promise<void> {
    const { clock, log } = this.#parts
    const shutDown = async (): Promise<void> => {
      try {
        await processor.forceFlush()
      } finally {
        await processor.shutdown()
      }
    }
    await boundedWait(clock, deadlineMs, shutDown()).catch((error: unknown) =>
      log.warn('SpanProcessorError', `a span processor did not shut down: ${messageOf(error)}`),
    )
  }

  /** Wraps a processor, so that its errors do not withhold the span from the other processors. */
  #isolate(processor: SpanProcessor): SpanProcessor {
    return {
      onStart: (span, parent) => this.#guard(() => processor.onStart(span, parent)),
      onEnding: (span) => this.#guard(() => processor.onEnding?.(span)),
      onEnd: (span) => this.#guard(() => processor.onEnd(span)),
      forceFlush: () => processor.forceFlush(),
      shutdown: () => processor.shutdown(),
    }
  }

  #contextOf(ids: SpanIds | null): Context {
    if (ids === null) return ROOT_CONTEXT
    const parent = this.#openSpans.get(ids.spanId)
    if (parent !== undefined) return trace.setSpan(ROOT_CONTEXT, parent)
    const { traceId, spanId } = ids
    return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: TraceFlags.SAMPLED })
  }

  /** Errors of processors, which are foreign code, must not reach the emitter. */
  #guard<T>(act: () => T): T | null {
    try {
      return act()
    } catch (error) {
      if (this.#hasWarned) return null
      this.#hasWarned = true
      this.#parts.log.warn('SpanProcessorError', `a span processor threw: ${messageOf(error)}`)
      return null
    }
  }
}

function findAdded(started: Span, own: Attributes): JsonObject | null {
  // A span that is not sampled has no attributes.
  const { attributes = {} } = started as Partial<ReadableSpan>
  const added = Object.entries(attributes).filter(([key]) => !Object.hasOwn(own, key))
  return added.length === 0 ? null : maskSecretsIn(toJsonObject(Object.fromEntries(added)))
}
