import { JsonTraceSerializer } from '@opentelemetry/otlp-transformer'
import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace'
import { expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { WorkflowEnded, WorkflowStarted } from '../../src/events/library-events.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { TaskCompleted, TaskCreated, TaskFailed, TaskStarted } from '../../src/events/vocabulary.ts'
import { newSpanId } from '../../src/foundation/ids.ts'
import { registerSecret } from '../../src/foundation/secrets.ts'
import { emitTaskEvent, openTelemetry, spansIn, withoutFile } from './open-telemetry.ts'

const Noted = defineEvent('parity.Noted', {})

interface Exported {
  readonly resourceSpans: {
    readonly resource: unknown
    readonly scopeSpans: {
      readonly scope: unknown
      readonly spans: { readonly spanId: string; readonly attributes: { readonly key: string }[] }[]
    }[]
  }[]
}

/** Resource, scope and spans, which come in another order: by id, and attributes by key. */
function contentOf(text: string) {
  const { resourceSpans } = JSON.parse(text) as Exported
  const spans = resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((one) => one.spans))
  return {
    resources: resourceSpans.map(({ resource }) => resource),
    scopes: resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.map(({ scope }) => scope)),
    spans: spans
      .toSorted((a, b) => (a.spanId < b.spanId ? -1 : 1))
      .map((span) => ({
        ...span,
        attributes: span.attributes.toSorted((a, b) => (a.key < b.key ? -1 : 1)),
      })),
  }
}

const many = (count: number): Record<string, number> =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`key-${at}`, at]))

it('exportAsOtlp and an exporter get the same spans, however large they are', async () => {
  const ended: ReadableSpan[] = []
  const processor: SpanProcessor = {
    onStart() {},
    onEnd: (span) => void ended.push(span),
    forceFlush: async () => {},
    shutdown: async () => {},
  }
  const resource = { 'service.name': 'parity', nested: { a: 1 } }
  const options = { ...withoutFile, spanProcessors: [processor], resource }
  const { telemetry, clock } = openTelemetry(options)
  telemetry.registerSpanEnricher(() => ({ '': 'no name', ratio: 0.5, isTest: true }))
  await telemetry.start()
  const to = { sink: telemetry, clock }
  for (const uid of ['done', 'failed', 'open', 'backwards']) emitTaskEvent(to, TaskCreated, uid)
  await clock.advance(500)
  for (const uid of ['done', 'failed']) emitTaskEvent(to, TaskStarted, uid)
  telemetry.spanScope('scope', { ...many(1500), list: [1, null], none: null, '': 1 }, () => {
    const facts = { session_id: 's1', backend: 'app', attributes: { ...many(200), '': 'x' } }
    telemetry.annotateCurrentSpan(makeEvent(Noted, facts))
    for (let at = 0; at < 10_500; at++)
      telemetry.annotateCurrentSpan(makeEvent(Noted, { ...facts, attributes: {} }))
  })
  telemetry.recordSpan({
    spanId: newSpanId(),
    name: 'batch',
    taskId: 'done',
    startTime: clock.now() - 1,
    endTime: clock.now(),
    attributes: { size: 300, '': 'x' },
    error: 'broken',
    links: Array.from({ length: 300 }, () => newSpanId()),
  })
  emitTaskEvent(to, TaskCompleted, 'done', { duration_seconds: 0.5 })
  emitTaskEvent(to, TaskFailed, 'failed', { duration_seconds: 0.5, error_type: 'RangeError' })
  // An application may date its events as it likes.
  emitTaskEvent(to, TaskCompleted, 'backwards', { event_time: clock.now() - 3600 })
  await telemetry.stop()
  const serialized = JsonTraceSerializer.serializeRequest(ended) ?? new Uint8Array()
  const exporter = contentOf(new TextDecoder().decode(serialized))
  const own = contentOf(telemetry.exportAsOtlp())
  expect(own.spans).toHaveLength(7)
  expect(own).toEqual(exporter)
})

it('attributes that a processor sets in onStart are in the export and the file', async () => {
  registerSecret('parity-secret-value')
  const ended: ReadableSpan[] = []
  const processor: SpanProcessor = {
    onStart(span) {
      span.setAttributes({ region: 'north', tags: ['a', 'b'], levels: [1, 2], isOn: true })
      // The span's own attributes stay, and secrets are masked.
      span.setAttributes({ session_id: 'other', token: 'is parity-secret-value' })
    },
    onEnd: (span) => void ended.push(span),
    forceFlush: async () => {},
    shutdown: async () => {},
  }
  const { telemetry, clock, folder } = openTelemetry({ spanProcessors: [processor] })
  telemetry.registerSpanEnricher(() => ({ enriched: 1 }))
  await telemetry.start()
  const to = { sink: telemetry, clock }
  const common = { session_id: 's1', backend: 'tutti', workflow_id: 'w1' }
  telemetry.emit(makeEvent(WorkflowStarted, { ...common, parent_workflow_id: null }))
  for (const uid of ['whole', 'open']) emitTaskEvent(to, TaskCreated, uid)
  emitTaskEvent(to, TaskStarted, 'created late')
  emitTaskEvent(to, TaskCreated, 'created late')
  for (const uid of ['whole', 'created late', 'only its end']) emitTaskEvent(to, TaskCompleted, uid)
  telemetry.spanScope('scope', { session_id: 's1', own: 1 }, () => {})
  const times = { startTime: clock.now() - 1, endTime: clock.now() }
  const attributes = { session_id: 's1', reasons: ['stop'] }
  const work = { spanId: newSpanId(), name: 'chat', taskId: 'whole', error: null, links: [] }
  telemetry.recordSpan({ ...work, ...times, attributes })
  telemetry.emit(makeEvent(WorkflowEnded, { ...common, duration_seconds: 1, error_message: null }))
  await telemetry.stop()

  const attributesById = (spans: readonly (readonly [id: string, attributes: object])[]) =>
    Object.fromEntries(spans)
  const seen = attributesById(ended.map((span) => [span.spanContext().spanId, span.attributes]))
  const written = spansIn(folder)
  expect(written.map(({ name }) => name).toSorted()).toEqual([
    'chat',
    'scope',
    'session',
    'task',
    'task',
    'task',
    'task',
    'workflow',
  ])
  for (const span of written) {
    expect(span.attributes).toMatchObject({ session_id: 's1', tags: ['a', 'b'], levels: [1, 2] })
    expect(span.attributes).toMatchObject({ region: 'north', isOn: true, token: 'is [masked]' })
  }
  expect(attributesById(written.map((span) => [span.span_id, span.attributes]))).toEqual(seen)
  const serialized = JsonTraceSerializer.serializeRequest(ended) ?? new Uint8Array()
  const exporter = contentOf(new TextDecoder().decode(serialized))
  expect(contentOf(telemetry.exportAsOtlp())).toEqual(exporter)
})
