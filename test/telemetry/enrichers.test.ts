import type { ReadableSpan, SpanProcessor } from '@opentelemetry/sdk-trace'
import { describe, expect, it } from 'vitest'
import { TaskCompleted, TaskCreated, TaskSubmitted } from '../../src/events/vocabulary.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import type { SpanEnricher } from '../../src/telemetry/spans/enrichers.ts'
import { openTelemetry, emitTaskEvent, spansIn, turns, withoutFile } from './open-telemetry.ts'

/** Runs one task and gives what enrichers added to its span, and the warnings. */
async function enrichedBy(...enrichers: readonly unknown[]) {
  const { telemetry, clock, warnings } = openTelemetry(withoutFile)
  for (const one of enrichers) telemetry.registerSpanEnricher(one as SpanEnricher)
  await telemetry.start()
  for (const uid of ['a', 'b']) {
    for (const one of [TaskCreated, TaskSubmitted, TaskCompleted]) {
      emitTaskEvent({ sink: telemetry, clock }, one, uid)
    }
  }
  await telemetry.stop()
  const [first, second] = telemetry.taskSpans()
  const { session_id, backend, task_id, executable, task_type, status, ...added } =
    first?.attributes ?? {}
  expect({ session_id, backend, task_id, executable, task_type, status }).toEqual({
    session_id: 's1',
    backend: 'local',
    task_id: 'a',
    executable: './simulate',
    task_type: 'compute',
    status: 'completed',
  })
  expect(second?.attributes).toEqual({ ...first?.attributes, task_id: 'b' })
  return { added, warnings }
}

describe('span enrichers', () => {
  it('span enrichers: apply in order of registration; the later one wins', async () => {
    const { added, warnings } = await enrichedBy(
      () => ({ first: 1, both: 'first' }),
      () => ({ both: 'second', yes: true }),
    )
    expect(added).toEqual({ first: 1, both: 'second', yes: true })
    expect(warnings).toEqual([])
  })

  it('span enrichers: are called once for each TaskCreated, with the event', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    const asked: unknown[] = []
    telemetry.registerSpanEnricher((event) => {
      asked.push(event)
      return { uid: event.task_id ?? '' }
    })
    await telemetry.start()
    const to = { sink: telemetry, clock }
    const created = emitTaskEvent(to, TaskCreated, 'a')
    emitTaskEvent(to, TaskSubmitted, 'a')
    // Out of order: the span was opened by another event.
    emitTaskEvent(to, TaskSubmitted, 'b')
    const late = emitTaskEvent(to, TaskCreated, 'b')
    await telemetry.stop()
    expect(asked).toEqual([created, late])
    expect(telemetry.taskSpans().map(({ attributes }) => attributes['uid'])).toEqual(['a', 'b'])
  })

  it('span enrichers: cannot replace attributes of the span itself', async () => {
    const reserved = { task_id: 'mine', status: 'mine', error_type: 'mine', workflow_id: 'mine' }
    const { added, warnings } = await enrichedBy(function greedy() {
      return { ...reserved, own: 1 }
    })
    expect(added).toEqual({ own: 1 })
    expect(warnings.map(({ message }) => message)).toEqual(
      Object.keys(reserved).map(
        (key) => `span enricher greedy: "${key}" is ignored: the span already has this attribute`,
      ),
    )
  })

  it('span enrichers: a number is a number in the file, the export and the SDK span', async () => {
    const ended: ReadableSpan[] = []
    const processor: SpanProcessor = {
      onStart() {},
      onEnd: (span) => void ended.push(span),
      forceFlush: async () => {},
      shutdown: async () => {},
    }
    const { telemetry, clock, folder } = openTelemetry({ spanProcessors: [processor] })
    const numbers = { whole: 3, part: 0.5, large: 2 ** 60, negative: -1 }
    telemetry.registerSpanEnricher(() => numbers)
    await telemetry.start()
    for (const one of [TaskCreated, TaskCompleted]) {
      emitTaskEvent({ sink: telemetry, clock }, one, 'a')
    }
    await telemetry.stop()
    expect(spansIn(folder).find(({ name }) => name === 'task')?.attributes).toMatchObject(numbers)
    expect(ended.find(({ name }) => name === 'task')?.attributes).toMatchObject(numbers)
    expect(telemetry.exportAsOtlp()).toContain('{"key":"whole","value":{"intValue":3}}')
    expect(telemetry.exportAsOtlp()).toContain('{"key":"part","value":{"doubleValue":0.5}}')
  })

  it('span enrichers: a value that is not a function is rejected', () => {
    const { telemetry } = openTelemetry(withoutFile)
    expect(() => telemetry.registerSpanEnricher({} as never)).toThrow(ValueError)
  })
})

describe('row 42: faulty enrichers', () => {
  const good: SpanEnricher = () => ({ good: true })
  const faulty: [string, unknown, string][] = [
    [
      'throws',
      function thrower() {
        throw new Error('no')
      },
      'thrower is ignored: it threw: no',
    ],
    ['returns nothing', function nothing() {}, 'nothing is ignored: it returned no object'],
    ['returns text', () => 'text', '#2 is ignored: it returned no object'],
    ['returns an array', () => [1], 'returned an array'],
    ['returns a promise', async () => ({ late: 1 }), 'returned a promise'],
  ]

  for (const [what, enricher, message] of faulty) {
    it(`row 42: an enricher that ${what} is ignored with one warning, others apply`, async () => {
      const { added, warnings } = await enrichedBy(good, enricher, () => ({ last: 1 }))
      expect(added).toEqual({ good: true, last: 1 })
      expect(warnings.map(({ code }) => code)).toEqual(['SpanEnricherError'])
      expect(warnings[0]?.message).toContain(message)
    })
  }

  const wrongValues: [string, () => object, string][] = [
    ['nests', () => ({ nested: { a: 1 } }), 'it is not a string, number or boolean'],
    ['has null', () => ({ nested: null }), 'it is not a string, number or boolean'],
    ['has a list', () => ({ nested: [1] }), 'it is not a string, number or boolean'],
    ['has NaN', () => ({ nested: Number.NaN }), 'it is not a finite number'],
    [
      'has a getter that throws',
      () => ({
        get nested(): never {
          throw new Error('getter')
        },
      }),
      'it threw: getter',
    ],
  ]
  for (const [what, wrong, problem] of wrongValues) {
    it(`row 42: an enricher that ${what} loses that value alone, with one warning`, async () => {
      const flawed = () => {
        const returned = { before: 1 }
        Object.defineProperties(returned, Object.getOwnPropertyDescriptors(wrong()))
        return Object.defineProperty(returned, 'after', { value: 'x', enumerable: true })
      }
      const { added, warnings } = await enrichedBy(good, flawed, () => ({ last: 1 }))
      expect(added).toEqual({ good: true, before: 1, after: 'x', last: 1 })
      expect(warnings).toEqual([
        {
          code: 'SpanEnricherError',
          message: `span enricher flawed: "nested" is ignored: ${problem}`,
        },
      ])
    })
  }

  it('row 42: an enricher that returns 1000 keys keeps the first 128', async () => {
    const { added, warnings } = await enrichedBy(function many() {
      return Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`k${at}`, at]))
    })
    expect(Object.keys(added)).toEqual(Array.from({ length: 128 }, (_, at) => `k${at}`))
    expect(warnings.map(({ message }) => message)).toEqual([
      'span enricher many: "k128" and all later keys are ignored: 1000 keys (at most 128)',
    ])
  })

  it('row 42: an enricher that makes up keys is reported ten times at most', async () => {
    let count = 0
    const { telemetry, clock, warnings } = openTelemetry(withoutFile)
    telemetry.registerSpanEnricher(() => ({ [`k${count++}`]: null as never }))
    await telemetry.start()
    for (let at = 0; at < 50; at++) emitTaskEvent({ sink: telemetry, clock }, TaskCreated, `t${at}`)
    await telemetry.stop()
    expect(warnings).toHaveLength(10)
  })

  it('row 42: the rejection of an async enricher is not unhandled', async () => {
    const rejections: unknown[] = []
    const listen = (reason: unknown): void => void rejections.push(reason)
    process.on('unhandledRejection', listen)
    const { warnings } = await enrichedBy(async () => {
      throw new Error('nobody waits for this')
    })
    await turns(5)
    process.off('unhandledRejection', listen)
    expect(rejections).toEqual([])
    expect(warnings).toHaveLength(1)
  })

  it('row 42: each result of an enricher is read once, as a getter may throw', async () => {
    const { added, warnings } = await enrichedBy(good, () => {
      let looks = 0
      return {
        get x() {
          if (++looks > 1) throw new Error('second look')
          return 1
        },
      }
    })
    expect(added).toEqual({ good: true, x: 1 })
    expect(warnings).toEqual([])
  })
})
