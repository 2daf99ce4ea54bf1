import { expect, it } from 'vitest'
import type { FinishedSpan } from '../../src/checkpoint/format.ts'
import type { CheckpointWriter } from '../../src/checkpoint/writer.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { EventBus } from '../../src/telemetry/bus.ts'
import { Envelope } from '../../src/telemetry/spans/envelope.ts'
import { Recorder } from '../../src/telemetry/recorder.ts'

const span = (attributes: object): FinishedSpan => ({
  name: 'x',
  span_id: 'a',
  trace_id: 'b',
  parent_span_id: null,
  start_time: 0,
  end_time: 1,
  duration_ms: 1000,
  status_code: 'UNSET',
  status_description: null,
  attributes: attributes as FinishedSpan['attributes'],
  events: [],
})

it('bus: dispatch continues after a consumer threw', async () => {
  const received: string[] = []
  const bus = new EventBus({
    clock: systemClock,
    log: { warn() {} },
    record: null,
    subscribers: {
      accept({ spanId }) {
        received.push(spanId)
        if (spanId === 'bad') throw new Error('on purpose')
      },
      endOfBatch() {},
    },
    inContext: (dispatch) => dispatch(),
  })
  bus.endStart()
  bus.publish(new Envelope(null, 'bad'))
  expect(() => bus.drain()).toThrow('on purpose')
  expect(bus.drained()).toBe(null)
  bus.publish(new Envelope(null, 'good'))
  bus.drainFully()
  expect(received).toEqual(['bad', 'good'])
})

it('recorder: a span that cannot be encoded is written without attributes and annotations', () => {
  const lines: string[] = []
  const writer = { append: (line: string) => void lines.push(line) } as unknown as CheckpointWriter
  const recorder = new Recorder({
    results: null,
    writer,
    clock: systemClock,
    traceId: 't',
    toSpan: () => span({}),
    readMetrics: () => ({}),
    metricSeconds: null,
  })
  // Like a span longer than the longest string, JSON cannot encode it.
  recorder.accept(new Envelope(null, 'a', span({ size: 1n })))
  recorder.accept(new Envelope(null, 'a', span({ size: 1 })))
  expect(lines.map((line) => (JSON.parse(line) as FinishedSpan).attributes)).toEqual([
    { truncated: true },
    { size: 1 },
  ])
})
