/** Converts the resource, times, attributes and finished spans to OpenTelemetry's types. */

import { createRequire } from 'node:module'
import { fileURLToPath } from 'node:url'
import {
  type Attributes,
  type HrTime,
  type SpanContext,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
} from '@opentelemetry/api'
import type * as transformer from '@opentelemetry/otlp-transformer'
import type * as resources from '@opentelemetry/resources'
import type { Resource } from '@opentelemetry/resources'
import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace'
import type { FinishedSpan } from '../../checkpoint/format.ts'
import type { JsonObject, JsonValue } from '../../foundation/json-value.ts'
import { version } from '../../foundation/version.ts'

export type { IMetricReader } from '@opentelemetry/sdk-metrics'
export type { Resource, SpanProcessor }

export const instrumentationScope = { name: 'rhapsody', version }

const require = createRequire(import.meta.url)

/**
 * Loads a package only when it is needed, because loading it would take most of the CPU time of a
 * start. Uses `require`, because `exportAsOtlp()` is synchronous. Loads the same copy as `import`
 * does, so an application that uses OpenTelemetry has already loaded it.
 */
function load(name: string): unknown {
  try {
    return require(fileURLToPath(import.meta.resolve(name)))
  } catch {
    // `require` fails while the application is importing the same copy
    // (ERR_REQUIRE_ESM_RACE_CONDITION). The CommonJS copy is equivalent.
    return require(name)
  }
}

export const loadTransformer = (): typeof transformer =>
  load('@opentelemetry/otlp-transformer') as typeof transformer

/**
 * The default resource, overridden by the environment (`OTEL_SERVICE_NAME`,
 * `OTEL_RESOURCE_ATTRIBUTES`), then by the caller.
 */
export function createResource(given: Resource | JsonObject | undefined): Resource {
  const loaded = load('@opentelemetry/resources') as typeof resources
  const { defaultResource, detectResources, envDetector, resourceFromAttributes } = loaded
  const defaults = defaultResource()
    .merge(resourceFromAttributes({ 'service.name': 'tutti' }))
    .merge(detectResources({ detectors: [envDetector] }))
  if (given === undefined) return defaults
  return defaults.merge(isResource(given) ? given : resourceFromAttributes(toOtelAttributes(given)))
}

const isResource = (given: Resource | JsonObject): given is Resource =>
  typeof given['getRawAttributes' as keyof typeof given] === 'function'

/** Converts seconds to OpenTelemetry's pair of seconds and nanoseconds. */
export function toHrTime(seconds: number): HrTime {
  const whole = Math.floor(seconds)
  const nanos = Math.round((seconds - whole) * 1e9)
  return nanos === 1e9 ? [whole + 1, 0] : [whole, nanos]
}

/**
 * Converts attributes. OpenTelemetry accepts scalars and lists of scalars of one type; other values
 * become JSON text. `null` and empty keys are left out.
 */
export function toOtelAttributes(attributes: JsonObject): Attributes {
  const flat: Attributes = {}
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || key === '') continue
    const isText = typeof value === 'object' && !isScalarList(value)
    flat[key] = isText ? JSON.stringify(value) : value
  }
  return flat
}

const isScalarList = (value: JsonValue): boolean =>
  Array.isArray(value) &&
  value.every((item) => typeof item !== 'object' && typeof item === typeof value[0])

const statusCodes = {
  UNSET: SpanStatusCode.UNSET,
  OK: SpanStatusCode.OK,
  ERROR: SpanStatusCode.ERROR,
}

export function toStatus(span: FinishedSpan): { code: SpanStatusCode; message?: string } {
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

export function toLinks({ links = [], trace_id: own }: FinishedSpan): { context: SpanContext }[] {
  return links.map((link) => {
    const ids = typeof link === 'string' ? { trace_id: own, span_id: link } : link
    const { trace_id: traceId, span_id: spanId } = ids
    return { context: { traceId, spanId, traceFlags: TraceFlags.SAMPLED } }
  })
}
