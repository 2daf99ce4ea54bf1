/** The requests of a record to models, which are spans. */

import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { expect, it } from 'vitest'
import { eventLine, type FinishedSpan, spanLine } from '../../src/checkpoint/format.ts'
import { readBatches } from '../../src/checkpoint/reader.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { readViews } from '../../src/record/record-views.ts'
import { addToBuckets, type LogBuckets, quantileOf } from '../../src/views/stats.ts'
import { createPastPass } from '../../src/views/moments/past-pass.ts'
import { inference } from '../../src/views/panels/inference.ts'
import { ask, sourceOf } from '../dashboard/queries/query-run.ts'
import { assertProperty } from '../property.ts'
import { tempFolder } from '../telemetry/open-telemetry.ts'
import { viewEvent } from './view-event.ts'

interface Request {
  readonly start: number
  readonly first?: number
  readonly end: number
  readonly cached?: number
  readonly error?: string
}

const requestSpan = (
  { start, first, end, cached, error }: Request,
  name = 'chat tiny',
): FinishedSpan => ({
  name,
  span_id: 'b'.repeat(16),
  trace_id: 'a'.repeat(32),
  parent_span_id: null,
  start_time: start,
  end_time: end,
  duration_ms: (end - start) * 1000,
  status_code: error === undefined ? 'UNSET' : 'ERROR',
  status_description: error ?? null,
  attributes: {
    'gen_ai.request.model': 'tiny',
    ...(error === undefined
      ? { 'gen_ai.usage.input_tokens': 100, 'gen_ai.usage.output_tokens': 11 }
      : { 'error.type': error }),
    ...(first === undefined ? {} : { 'gen_ai.response.time_to_first_chunk': first }),
    ...(cached === undefined ? {} : { 'gen_ai.usage.cache_read.input_tokens': cached }),
  },
  events: [],
})

const toLine = (type: string, time: number): string => {
  const event = { ...viewEvent(type, null, { event_time: time }), event_id: `e${time}` }
  const ids = ['a'.repeat(32), 'b'.repeat(16)] as const
  return eventLine({ ...event, emit_time: time } as unknown as BaseEvent, ...ids)
}

const lines = [
  toLine('SessionStarted', 0),
  spanLine(requestSpan({ start: 10, first: 0.2, end: 12.2, cached: 60 })),
  spanLine(requestSpan({ start: 11, first: 0.4, end: 14.4, cached: 0 })),
  spanLine(requestSpan({ start: 15, end: 20 })),
  spanLine(requestSpan({ start: 16, end: 17, error: 'engine_error' })),
  spanLine(requestSpan({ start: 1, first: 9, end: 30 }, 'a scope')),
  toLine('SessionEnded', 40),
]

function writeLines(): string {
  const path = join(tempFolder(), 's-1.1700000000.telemetry.jsonl')
  writeFileSync(path, lines.join(''))
  return path
}

it('a record tells times to tokens, tokens per second and cache use of each model', async () => {
  const { pass, lines: count, bad } = await readViews(writeLines())
  expect([count, bad]).toEqual([lines.length, 0])
  const { models } = inference.show(pass.states.inference)
  expect(models).toMatchObject([{ model: 'tiny', done: 3, failed: 1 }])
  const [model] = models
  expect(model?.promptTokensPerSecond).toBe(30)
  expect(model?.answerTokensPerSecond).toBe(3.3)
  expect(model?.cacheUse).toBe(0.3)
  expect(model?.prefixHits).toBe(0.5)
  const isNear = (value: number | undefined, exact: number): void =>
    expect(Math.abs((value ?? 0) / exact - 1)).toBeLessThan(0.06)
  isNear(model?.ttft?.p50, 0.2)
  isNear(model?.ttft?.p95, 0.4)
  isNear(model?.betweenTokens?.p50, 0.2)
  isNear(model?.betweenTokens?.p95, 0.3)
  const view = await ask(sourceOf([], { pass, state: 'ended', now: 40 }), 'inference', {})
  expect(view.models).toMatchObject([{ ...model, running: 0, waiting: 0 }])
})

it('requests are left out at an earlier time, for which the record keeps no numbers', async () => {
  const { pass } = await readViews(writeLines())
  const past = createPastPass(pass, 15)
  expect(past === null ? null : inference.show(past.states.inference).models).toEqual([])
  const { pass: read } = await readViews(writeLines(), { until: 15 })
  expect(inference.show(read.states.inference).models).toMatchObject([{ done: 2, failed: 0 }])
})

it('readers that skip spans parse only those of requests, if they want them', async () => {
  const names: string[] = []
  for await (const batch of readBatches(writeLines(), { skipSpans: true, keepRequestSpans: true }))
    for (const line of batch) if (line.section === 'span') names.push(line.name)
  expect(names).toEqual(Array.from({ length: 4 }, () => 'chat tiny'))
})

it('quantiles of logarithmic buckets are those of the durations, to 5 %', () => {
  const durations = fc.array(fc.double({ min: 1e-4, max: 1000, noNaN: true }), { minLength: 1 })
  assertProperty(
    fc.property(durations, fc.constantFrom(0.5, 0.95), (all, quantile) => {
      const buckets: LogBuckets = []
      for (const one of all) addToBuckets(buckets, one)
      const sorted = all.toSorted((a, b) => a - b)
      const exact = sorted[Math.ceil(quantile * sorted.length) - 1] ?? 0
      expect(Math.abs((quantileOf(buckets, quantile) ?? 0) / exact - 1)).toBeLessThan(0.051)
    }),
  )
  expect(quantileOf([], 0.5)).toBeNull()
})
