import { expect, it } from 'vitest'
import type { FinishedSpan } from '../../src/checkpoint/format.ts'
import type { CheckpointWriter } from '../../src/checkpoint/writer.ts'
import { stampEvent } from '../../src/events/event.ts'
import { TaskCreated } from '../../src/events/vocabulary.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import { DerivedIds, newIdKey } from '../../src/events/derived-ids.ts'
import { EventBus } from '../../src/telemetry/bus.ts'
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
  const received: (string | null)[] = []
  const bus = new EventBus({
    clock: systemClock,
    log: { warn() {} },
    subscribers: {
      isNeeded: true,
      accept({ task_id: uid }) {
        received.push(uid)
        if (uid === 'bad') throw new Error('on purpose')
      },
    },
    inContext: (dispatch) => dispatch(),
  })
  const publish = (task_id: string): void =>
    bus.publish(stampEvent(TaskCreated, systemClock, { session_id: 's', backend: '', task_id }))
  bus.endStart()
  publish('bad')
  expect(() => bus.drain()).toThrow('on purpose')
  expect(bus.whenDrained()).toBe(null)
  publish('good')
  bus.drainFully()
  expect(received).toEqual(['bad', 'good'])
})

it('recorder: a span that cannot be encoded is written without attributes and annotations', () => {
  const lines: string[] = []
  const writer = {
    append: (line: string) => void lines.push(line),
    checkAge() {},
  } as unknown as CheckpointWriter
  const recorder = new Recorder({
    results: null,
    writer,
    clock: systemClock,
    sessionId: 's',
    traceId: 't',
    ids: new DerivedIds(newIdKey()),
    toSpan: () => span({}),
    readMetrics: () => ({}),
    metricSeconds: null,
  })
  // Like a span longer than the longest string, JSON cannot encode it.
  recorder.addSpan(span({ size: 1n }), 0)
  recorder.addSpan(span({ size: 1 }), 0)
  expect(lines.map((line) => (JSON.parse(line) as FinishedSpan).attributes)).toEqual([
    { truncated: true },
    { size: 1 },
  ])
})
