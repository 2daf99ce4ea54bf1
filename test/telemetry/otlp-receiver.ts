/** An OTLP/HTTP endpoint that keeps the requests of standard exporters, decoded from protobuf. */

import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { gunzipSync } from 'node:zlib'
import protobuf from 'protobufjs'
import { onTestFinished } from 'vitest'

interface KeyValue {
  readonly key: string
  readonly value: Readonly<Record<string, unknown>>
}

/** A span in OTLP, the same in decoded protobuf and in JSON. */
export interface WireSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes?: readonly KeyValue[]
  readonly events?: readonly {
    readonly name: string
    readonly timeUnixNano: string
    readonly attributes?: readonly KeyValue[]
  }[]
  readonly status?: { readonly code?: number; readonly message?: string }
}

export interface WirePoint {
  readonly startTimeUnixNano: string
  readonly timeUnixNano: string
  readonly asInt?: string
  readonly asDouble?: number
  readonly count?: string
  readonly sum?: number
  readonly min?: number
  readonly max?: number
  readonly bucketCounts?: readonly string[]
  readonly explicitBounds?: readonly number[]
  readonly attributes?: readonly KeyValue[]
}

interface WireData {
  readonly dataPoints?: readonly WirePoint[]
  readonly aggregationTemporality: number
  readonly isMonotonic?: boolean
}

export interface WireMetric {
  readonly name: string
  readonly unit: string
  readonly description: string
  readonly sum?: WireData
  readonly histogram?: WireData
}

interface Scoped {
  readonly scope: { readonly name: string; readonly version: string }
}

export interface TraceRequest {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] }
    readonly scopeSpans: readonly (Scoped & { readonly spans: readonly WireSpan[] })[]
  }[]
}

export interface MetricRequest {
  readonly resourceMetrics: readonly {
    readonly resource: { readonly attributes: readonly KeyValue[] }
    readonly scopeMetrics: readonly (Scoped & { readonly metrics: readonly WireMetric[] })[]
  }[]
}

export interface OtlpReceiver {
  readonly tracesUrl: string
  readonly metricsUrl: string
  readonly traces: TraceRequest[]
  readonly metrics: MetricRequest[]
}

const schema = protobuf.loadSync(join(import.meta.dirname, 'fixtures', 'otlp.proto'))

/** Bytes become hex, as in the JSON form of OTLP. */
function decode(type: string, body: Buffer): unknown {
  const message = schema.lookupType(`otlp.${type}`)
  const plain = message.toObject(message.decode(body), { longs: String, bytes: Buffer })
  return JSON.parse(
    JSON.stringify(plain, (_, value: unknown) => {
      const isBytes = typeof value === 'object' && value !== null && 'type' in value
      if (!isBytes || !('data' in value) || value.type !== 'Buffer') return value
      return Buffer.from(value.data as number[]).toString('hex')
    }),
  )
}

export async function startReceiver(): Promise<OtlpReceiver> {
  const traces: TraceRequest[] = []
  const metrics: MetricRequest[] = []
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = []
    for await (const chunk of request) chunks.push(chunk as Buffer)
    const raw = Buffer.concat(chunks)
    const body = request.headers['content-encoding'] === 'gzip' ? gunzipSync(raw) : raw
    if (request.headers['content-type'] !== 'application/x-protobuf') {
      response.writeHead(415).end()
    } else if (request.url === '/v1/traces') {
      traces.push(decode('ExportTraceServiceRequest', body) as TraceRequest)
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    } else {
      metrics.push(decode('ExportMetricsServiceRequest', body) as MetricRequest)
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end()
    }
  })
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}/v1`
  return { tracesUrl: `${url}/traces`, metricsUrl: `${url}/metrics`, traces, metrics }
}

export const spansOfTraces = (requests: readonly TraceRequest[]): WireSpan[] =>
  requests.flatMap(({ resourceSpans }) =>
    resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap(({ spans }) => spans)),
  )

export const metricsOf = ({ resourceMetrics }: MetricRequest): WireMetric[] =>
  resourceMetrics.flatMap(({ scopeMetrics }) => scopeMetrics.flatMap(({ metrics }) => metrics))

/** `{ key: value }`, whatever the type of the value. */
export function plainAttributes(
  attributes: readonly KeyValue[] | undefined,
): Record<string, unknown> {
  return Object.fromEntries(
    (attributes ?? []).map(({ key, value }) => {
      const [shown] = Object.values(value)
      return [key, 'intValue' in value ? Number(shown) : shown]
    }),
  )
}
