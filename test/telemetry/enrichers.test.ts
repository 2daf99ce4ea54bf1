import { describe, expect, it } from 'vitest'
import { TaskCompleted, TaskCreated, TaskSubmitted } from '../../src/events/vocabulary.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import type { SpanEnricher } from '../../src/telemetry/spans/enrichers.ts'
import { openTelemetry, emitTaskEvent, turns, withoutFile } from './open-telemetry.ts'

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
    const { added } = await enrichedBy(() => ({ task_id: 'mine', status: 'mine', own: 1 }))
    expect(added).toEqual({ own: 1 })
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
    ['nests', () => ({ fine: 1, nested: { a: 1 } }), 'a nested value under "nested"'],
    ['returns null values', () => ({ empty: null }), 'a nested value under "empty"'],
    ['returns a promise', async () => ({ late: 1 }), 'returned a promise'],
    [
      'returns 1000 keys',
      () => Object.fromEntries(Array.from({ length: 1000 }, (_, at) => [`k${at}`, at])),
      '1000 keys',
    ],
    [
      'has a getter that throws',
      () => ({
        get x(): never {
          throw new Error('getter')
        },
      }),
      'it threw: getter',
    ],
  ]

  for (const [what, enricher, message] of faulty) {
    it(`row 42: an enricher that ${what} is ignored with one warning, others apply`, async () => {
      const { added, warnings } = await enrichedBy(good, enricher, () => ({ last: 1 }))
      expect(added).toEqual({ good: true, last: 1 })
      expect(warnings.map(({ code }) => code)).toEqual(['SpanEnricherError'])
      expect(warnings[0]?.message).toContain(message)
    })
  }

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
