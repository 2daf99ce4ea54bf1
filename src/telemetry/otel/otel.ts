/**
 * Spans for OpenTelemetry: SDK spans for attached processors, and readable spans for the export.
 * Also the resource and the conversions that metrics share.
 */

import {
  type Context,
  type HrTime,
  ROOT_CONTEXT,
  type Span,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  trace,
  TraceFlags,
  type Tracer,
} from '@opentelemetry/api'
import {
  defaultResource,
  detectResources,
  envDetector,
  type Resource,
  resourceFromAttributes,
} from '@opentelemetry/resources'
import { type ReadableSpan, type SpanProcessor, TracerProvider } from '@opentelemetry/sdk-trace'
import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { Log } from '../../foundation/log.ts'
import { version } from '../../foundation/version.ts'
import { boundedWait } from '../../foundation/promises.ts'
import type { SpanIds } from '../spans/span-ids.ts'
import type { SpanMirror, StartedSpan } from '../spans/span-mirror.ts'

export type { IMetricReader } from '@opentelemetry/sdk-metrics'
export type { Resource, SpanProcessor }

/** The scope of the meter and the tracer. */
export const instrumentationScope = { name: 'rhapsody', version }

/**
 * The default resource, overridden by the environment (`OTEL_SERVICE_NAME`,
 * `OTEL_RESOURCE_ATTRIBUTES`), which is overridden by the caller.
 */
export function createResource(given: Resource | JsonObject | undefined): Resource {
  const ours = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': 'tutti' }))
    .merge(detectResources({ detectors: [envDetector] }))
  if (given === undefined) return ours
  return ours.merge(isResource(given) ? given : resourceFromAttributes(toOtelAttributes(given)))
}

const isResource = (given: Resource | JsonObject): given is Resource =>
  typeof given['getRawAttributes' as keyof typeof given] === 'function'

/** Seconds to OpenTelemetry's pair of seconds and nanoseconds. */
export function toHrTime(seconds: number): HrTime {
  const whole = Math.floor(seconds)
  const nanos = Math.round((seconds - whole) * 1e9)
  return nanos === 1e9 ? [whole + 1, 0] : [whole, nanos]
}

/**
 * OpenTelemetry accepts scalars; other values become JSON text. `null` and empty keys are left out.
 */
export function toOtelAttributes(
  attributes: JsonObject,
): Record<string, string | number | boolean> {
  const flat: Record<string, string | number | boolean> = {}
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || key === '') continue
    flat[key] = typeof value === 'object' ? JSON.stringify(value) : (value as string)
  }
  return flat
}

const statusCodes = {
  UNSET: SpanStatusCode.UNSET,
  OK: SpanStatusCode.OK,
  ERROR: SpanStatusCode.ERROR,
}

function toStatus(span: FinishedSpan): { code: SpanStatusCode; message?: string } {
  const code = statusCodes[span.status_code]
  return span.status_description === null ? { code } : { code, message: span.status_description }
}

/** A finished span in the form that exporters and serializers read. */
export function toReadableSpan(span: FinishedSpan, resource: Resource): ReadableSpan {
  const startTime = toHrTime(span.start_time)
  const endTime = toHrTime(span.end_time)
  const contextOf = (spanId: string) => ({
    traceId: span.trace_id,
    spanId,
    traceFlags: TraceFlags.SAMPLED,
  })
  return {
    name: span.name,
    kind: SpanKind.INTERNAL,
    spanContext: () => contextOf(span.span_id),
    ...(span.parent_span_id === null ? {} : { parentSpanContext: contextOf(span.parent_span_id) }),
    startTime,
    endTime,
    status: toStatus(span),
    attributes: toOtelAttributes(span.attributes),
    links: toLinks(span),
    events: span.events.map(({ name, time, attributes }) => ({
      name,
      time: toHrTime(time),
      attributes: toOtelAttributes(attributes),
    })),
    duration: toHrTime(span.duration_ms / 1000),
    ended: true,
    resource,
    instrumentationScope,
    droppedAttributesCount: 0,
    droppedEventsCount: 0,
    droppedLinksCount: 0,
  }
}

function toLinks({ links = [], trace_id: own }: FinishedSpan): { context: SpanContext }[] {
  return links.map((link) => {
    const ids = typeof link === 'string' ? { trace_id: own, span_id: link } : link
    const { trace_id: traceId, span_id: spanId } = ids
    return { context: { traceId, spanId, traceFlags: TraceFlags.SAMPLED } }
  })
}

/** An exporter gets the same as `exportAsOtlp`; the spans are in memory anyway. */
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

/** Creates an SDK span with the same ids and times for each span, for the attached processors. */
export class OtelSpanMirror implements SpanMirror {
  readonly #parts: MirrorParts
  readonly #provider: TracerProvider
  readonly #tracer: Tracer
  readonly #open = new Map<string, Span>()
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

  started(spanId: string, span: () => StartedSpan): void {
    this.#guard(() => {
      const { name, time, parent, attributes } = span()
      this.#nextSpanId = spanId
      const options = { startTime: toHrTime(time), attributes: toOtelAttributes(attributes) }
      this.#open.set(spanId, this.#tracer.startSpan(name, options, this.#contextOf(parent)))
    })
  }

  annotated(spanId: string, annotation: Parameters<SpanMirror['annotated']>[1]): void {
    this.#guard(() => {
      const { name, time, attributes } = annotation()
      this.#open.get(spanId)?.addEvent(name, toOtelAttributes(attributes), toHrTime(time))
    })
  }

  ended(spanId: string, finished: () => FinishedSpan): void {
    this.#guard(() => {
      const open = this.#open.get(spanId)
      if (open === undefined) return
      this.#open.delete(spanId)
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
    const closing = async (): Promise<void> => {
      try {
        await processor.forceFlush()
      } finally {
        await processor.shutdown()
      }
    }
    await boundedWait(clock, deadlineMs, closing()).catch((error: unknown) =>
      log.warn('SpanProcessorError', `a span processor did not shut down: ${messageOf(error)}`),
    )
  }

  /** An error of one processor must not keep the span from the others. */
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
    const parent = this.#open.get(ids.spanId)
    if (parent !== undefined) return trace.setSpan(ROOT_CONTEXT, parent)
    const { traceId, spanId } = ids
    return trace.setSpanContext(ROOT_CONTEXT, { traceId, spanId, traceFlags: TraceFlags.SAMPLED })
  }

  /** Errors of processors, which are foreign code, must not reach the emitter. */
  #guard(act: () => void): void {
    try {
      act()
    } catch (error) {
      if (this.#hasWarned) return
      this.#hasWarned = true
      this.#parts.log.warn('SpanProcessorError', `a span processor threw: ${messageOf(error)}`)
    }
  }
}
