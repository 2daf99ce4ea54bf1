import { createServer, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-proto'
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-proto'
import { PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import {
  BatchSpanProcessor,
  InMemorySpanExporter,
  type ReadableSpan,
  SimpleSpanProcessor,
  type SpanExporter,
  type SpanProcessor,
} from '@opentelemetry/sdk-trace'
import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest'
import { TaskCompleted, TaskCreated } from '../../src/events/vocabulary.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import type { TelemetryOptions } from '../../src/telemetry/options.ts'
import { linesIn, openTelemetry, spansIn, emitTaskEvent, turns } from './open-telemetry.ts'

const rejections: unknown[] = []
const listen = (reason: unknown): void => void rejections.push(reason)
beforeAll(() => void process.on('unhandledRejection', listen))
afterAll(() => void process.off('unhandledRejection', listen))
beforeEach(() => void rejections.splice(0))

/** A server that sends the beginning of a response, or none. */
async function startSink(answer: Parameters<typeof createServer>[1]): Promise<string> {
  const server: Server = createServer(answer)
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  onTestFinished(() => {
    server.closeAllConnections()
    server.close()
  })
  const { port } = server.address() as AddressInfo
  return `http://127.0.0.1:${port}`
}

/** Runs tasks with these processors or readers, and checks that the run is not affected. */
async function runWith(options: Partial<TelemetryOptions>, tasks = 50) {
  const open = openTelemetry({ clock: systemClock, stopDeadlineSeconds: 0.2, ...options })
  const { telemetry, folder, warnings } = open
  await telemetry.start()
  for (let task = 0; task < tasks; task++) {
    emitTaskEvent({ sink: telemetry, clock: systemClock }, TaskCreated, `t${task}`)
    emitTaskEvent({ sink: telemetry, clock: systemClock }, TaskCompleted, `t${task}`)
  }
  await telemetry.stop()
  await turns(10)
  expect(spansIn(folder)).toHaveLength(tasks + 1)
  expect(linesIn(folder).at(-1)?.section).toBe('metric')
  expect(telemetry.exportAsOtlp().split('"name":"task"')).toHaveLength(tasks + 1)
  expect(rejections).toEqual([])
  return warnings.map(({ code }) => code)
}

const never: SpanExporter = { export() {}, shutdown: async () => {} }
const throwing: SpanExporter = {
  export() {
    throw new Error('exporter threw')
  },
  shutdown: async () => {},
}

describe('row 44: exporters that fail', () => {
  it('row 44: a collector that is down does not affect the run', async () => {
    const url = 'http://127.0.0.1:1/v1/traces'
    const traces = () => new OTLPTraceExporter({ url, timeoutMillis: 100 })
    const processors = [
      new BatchSpanProcessor({ exporter: traces() }),
      new SimpleSpanProcessor({ exporter: traces() }),
    ]
    const exporter = new OTLPMetricExporter({ url, timeoutMillis: 100 })
    const reader = new PeriodicExportingMetricReader({ exporter })
    await runWith({ spanProcessors: processors, metricReaders: [reader] }, 5)
  })

  it('row 44: a collector that never answers delays stop up to its deadline', async () => {
    const requests: string[] = []
    let givenUp = 0
    const url = await startSink((request) => {
      requests.push(request.url ?? '')
      request.on('close', () => givenUp++)
    })
    const exporter = new OTLPTraceExporter({ url: `${url}/v1/traces` })
    const metrics = new OTLPMetricExporter({ url: `${url}/v1/metrics` })
    const codes = await runWith({
      spanProcessors: [new BatchSpanProcessor({ exporter, exportTimeoutMillis: 1000 })],
      metricReaders: [
        new PeriodicExportingMetricReader({
          exporter: metrics,
          exportIntervalMillis: 1000,
          exportTimeoutMillis: 1000,
        }),
      ],
    })
    expect(codes.toSorted()).toEqual(['MetricReaderError', 'SpanProcessorError'])
    expect(new Set(requests)).toEqual(new Set(['/v1/traces', '/v1/metrics']))
    // The exporters themselves still wait.
    expect(givenUp).toBe(0)
  })

  it('row 44: exporters that throw do not affect the run', async () => {
    const codes = await runWith({
      spanProcessors: [
        new BatchSpanProcessor({ exporter: throwing }),
        new SimpleSpanProcessor({ exporter: throwing }),
      ],
    })
    expect(new Set(codes)).toEqual(new Set(['SpanProcessorError']))
  })

  it('row 44: exporters that never call back delay stop up to its deadline', async () => {
    const codes = await runWith({
      spanProcessors: [
        new BatchSpanProcessor({ exporter: never, exportTimeoutMillis: 1000 }),
        new SimpleSpanProcessor({ exporter: never }),
      ],
    })
    expect(codes).toEqual(['SpanProcessorError', 'SpanProcessorError'])
  })

  it('row 44: a processor that always throws does not keep spans from the next one', async () => {
    const fail = (): never => {
      throw new Error('processor threw')
    }
    const bad: SpanProcessor = {
      onStart: fail,
      onEnding: fail,
      onEnd: fail,
      forceFlush: fail,
      shutdown: fail,
    }
    const kept: ReadableSpan[] = []
    let shutdowns = 0
    const exporter = new InMemorySpanExporter()
    const good: SpanProcessor = {
      onStart() {},
      onEnd: (span) => void kept.push(span),
      forceFlush: async () => {},
      shutdown: async () => void shutdowns++,
    }
    const simple = new SimpleSpanProcessor({ exporter })
    const codes = await runWith({ spanProcessors: [bad, simple, good] })
    expect(kept).toHaveLength(51)
    expect(shutdowns).toBe(1)
    // One when it first threw, one when it did not shut down.
    expect(codes).toEqual(['SpanProcessorError', 'SpanProcessorError'])
  })

  it('row 44: a processor whose flush fails is still shut down', async () => {
    let shutdowns = 0
    const flushless: SpanProcessor = {
      onStart() {},
      onEnd() {},
      forceFlush: () => Promise.reject(new Error('no flush')),
      shutdown: async () => void shutdowns++,
    }
    const codes = await runWith({ spanProcessors: [flushless] })
    expect([shutdowns, codes]).toEqual([1, ['SpanProcessorError']])
  })

  it('row 44: a processor with a full queue drops only its own spans', async () => {
    const sizes: number[] = []
    const exporter: SpanExporter = {
      export(spans, done) {
        sizes.push(spans.length)
        done({ code: 0 })
      },
      shutdown: async () => {},
    }
    const processor = new BatchSpanProcessor({ exporter, maxQueueSize: 10, maxExportBatchSize: 10 })
    await runWith({ spanProcessors: [processor] }, 2000)
    const exported = sizes.reduce((sum, size) => sum + size, 0)
    expect(exported).toBeGreaterThanOrEqual(10)
    expect(Math.max(...sizes)).toBeLessThanOrEqual(10)
  })
})

it('a processor without an exporter, as older examples create it, is refused', () => {
  const older = [SimpleSpanProcessor, BatchSpanProcessor].map((Processor) =>
    // The constructors of version 2 took the exporter itself.
    Reflect.construct(Processor, [new InMemorySpanExporter()]),
  )
  for (const processor of older) {
    const open = () =>
      openTelemetry({ spanProcessors: [new SimpleSpanProcessor({ exporter: never }), processor] })
    expect(open).toThrow(
      expect.objectContaining({
        field: 'spanProcessors[1]',
        hint: expect.stringContaining(`new ${processor.constructor.name}({ exporter })`),
      }),
    )
  }
})
