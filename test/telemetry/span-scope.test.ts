import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { TaskCompleted, TaskCreated } from '../../src/events/vocabulary.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { registerSecret } from '../../src/foundation/secrets.ts'
import { runInTask } from '../../src/foundation/task-context.ts'
import { openTelemetry, spansIn, emitTaskEvent, turn, withoutFile } from './open-telemetry.ts'

const Mark = defineEvent('scope.Mark', { level: 'int', detail: 'any' })
const mark = (attributes: object = {}, fields: { level?: number; detail?: {} } = {}) => {
  const common = { session_id: 's1', backend: 'app', event_time: 1_700_000_001 }
  return makeEvent(Mark, { ...common, attributes, ...(fields as { level?: number }) })
}

async function startedTelemetry() {
  const open = openTelemetry()
  await open.telemetry.start()
  const spanNamed = (name: string) => spansIn(open.folder).find((span) => span.name === name)
  return { ...open, spanNamed }
}

describe('spanScope', () => {
  it('spanScope: finished scopes are stored outside of the heap, in order', async () => {
    const { telemetry, folder } = await startedTelemetry()
    const scopes = 300
    for (let scope = 0; scope < scopes; scope++) {
      telemetry.spanScope(`scope ${scope}`, { text: 'é'.repeat(8192) }, () => {
        telemetry.annotateCurrentSpan(mark({ scope }))
      })
    }
    await telemetry.stop()
    expect(telemetry.summary().telemetry.spill_bytes).toBeGreaterThan(scopes * 8192)
    const written = spansIn(folder).filter(({ name }) => name.startsWith('scope '))
    const exported = JSON.parse(telemetry.exportAsOtlp()) as {
      resourceSpans: { scopeSpans: { spans: { spanId: string; name: string }[] }[] }[]
    }
    const spans = exported.resourceSpans
      .flatMap(({ scopeSpans }) => scopeSpans.flatMap((one) => one.spans))
      .filter(({ name }) => name.startsWith('scope '))
    expect(spans.map(({ spanId, name }) => [spanId, name])).toEqual(
      written.map(({ span_id: id, name }) => [id, name]),
    )
    expect(spans.at(-1)?.name).toBe(`scope ${scopes - 1}`)
    expect(spans).toHaveLength(scopes)
  })

  it('row 88: a secret in the error of a scope is masked in its status', async () => {
    const { telemetry, spanNamed } = await startedTelemetry()
    registerSecret('the secret of a scope')
    const fail = (): never => {
      throw new Error('refused: the secret of a scope')
    }
    expect(() => telemetry.spanScope('failing', fail)).toThrow('the secret of a scope')
    await telemetry.stop()
    expect(spanNamed('failing')?.status_description).toBe('refused: [masked]')
  })

  it('spanScope: is under its task from the tick in which the task was created', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'a')
    const result = runInTask('a', () => telemetry.spanScope('first tick', () => 42))
    emitTaskEvent({ sink: telemetry, clock }, TaskCompleted, 'a')
    await telemetry.stop()
    expect(result).toBe(42)
    expect(spanNamed('first tick')?.parent_span_id).toBe(spanNamed('task')?.span_id)
  })

  it('spanScope: nests across awaits, and concurrent scopes do not mix', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    const inside = async (name: string): Promise<string> =>
      telemetry.spanScope(`${name} outer`, { name }, async () => {
        await clock.advance(10)
        return telemetry.spanScope(`${name} inner`, async () => {
          await turn()
          return name
        })
      })
    expect(await Promise.all([inside('a'), inside('b')])).toEqual(['a', 'b'])
    await telemetry.stop()
    for (const name of ['a', 'b']) {
      const [outer, inner] = [spanNamed(`${name} outer`), spanNamed(`${name} inner`)]
      expect(inner?.parent_span_id).toBe(outer?.span_id)
      expect(outer?.parent_span_id).toBe(spanNamed('session')?.span_id)
      expect(outer?.trace_id).toBe(spanNamed('session')?.trace_id)
      expect(outer?.attributes).toEqual({ name })
    }
  })

  it('spanScope: code of a task does not see a scope around the task', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    telemetry.spanScope('around', () => {
      emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'a')
      runInTask('a', () => telemetry.spanScope('within', () => {}))
    })
    await telemetry.stop()
    expect(spanNamed('within')?.parent_span_id).toBe(spanNamed('task')?.span_id)
  })

  it('spanScope: nests through a scope of another manager', async () => {
    const [one, other] = [await startedTelemetry(), await startedTelemetry()]
    one.telemetry.spanScope('outer', () =>
      other.telemetry.spanScope('between', () => {
        one.telemetry.spanScope('inner', () => {})
        one.telemetry.annotateCurrentSpan(mark())
      }),
    )
    await Promise.all([one.telemetry.stop(), other.telemetry.stop()])
    expect(one.spanNamed('inner')?.parent_span_id).toBe(one.spanNamed('outer')?.span_id)
    expect(one.spanNamed('outer')?.events).toHaveLength(1)
    expect(other.spanNamed('between')?.parent_span_id).toBe(other.spanNamed('session')?.span_id)
  })

  it('spanScope: lasts until a thenable has settled, and returns it unchanged', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    const { promise, resolve } = Promise.withResolvers<void>()
    const thenable = { then: promise.then.bind(promise), more: true }
    const given = telemetry.spanScope('waits', () => thenable)
    expect(given).toBe(thenable)
    await clock.advance(50)
    resolve()
    await given
    await telemetry.stop()
    expect(spanNamed('waits')?.duration_ms).toBeCloseTo(50)
  })

  it('spanScope: only runs the callback before start and after stop', async () => {
    const { telemetry, folder } = openTelemetry()
    expect(telemetry.spanScope('early', () => 1)).toBe(1)
    await telemetry.start()
    await telemetry.stop()
    expect(await telemetry.spanScope('late', async () => 2)).toBe(2)
    expect(() =>
      telemetry.spanScope('late', () => {
        throw new RangeError('mine')
      }),
    ).toThrow(new RangeError('mine'))
    expect(spansIn(folder).map(({ name }) => name)).toEqual(['session'])
  })

  it('spanScope: a missing name or callback is rejected by name', async () => {
    const { telemetry } = await startedTelemetry()
    expect(() => telemetry.spanScope('', () => {})).toThrow(ValueError)
    expect(() => telemetry.spanScope('x', {}, 1 as never)).toThrow(/`callback` to be a function/)
    await telemetry.stop()
  })

  it('spanScope: does not see the scopes of another manager', async () => {
    const one = await startedTelemetry()
    const other = await startedTelemetry()
    one.telemetry.spanScope('of one', () => other.telemetry.spanScope('of other', () => {}))
    await Promise.all([one.telemetry.stop(), other.telemetry.stop()])
    expect(other.spanNamed('of other')?.parent_span_id).toBe(other.spanNamed('session')?.span_id)
  })

  it('spanScope: copies attributes when it opens and does not change them', async () => {
    const { telemetry, spanNamed } = await startedTelemetry()
    const attributes = { list: [1], big: 1n }
    telemetry.spanScope('copied', attributes, () => attributes.list.push(2))
    await telemetry.stop()
    const copied = { list: [1], big: '[unserializable: BigInt]' }
    expect(spanNamed('copied')?.attributes).toEqual(copied)
    expect(attributes.list).toEqual([1, 2])
  })
})

describe('row 43: span scopes that fail', () => {
  it('row 43: an error ends the span with status ERROR and is rethrown', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    const failure = new RangeError('out of range')
    expect(() =>
      telemetry.spanScope('sync', () => {
        throw failure
      }),
    ).toThrow(failure)
    const rejected = telemetry.spanScope('async', async () => {
      await clock.advance(5)
      throw failure
    })
    await expect(rejected).rejects.toBe(failure)
    const thrownNull = (): never =>
      telemetry.spanScope('null', () => {
        throw null
      })
    expect(thrownNull).toThrow()
    await telemetry.stop()
    for (const name of ['sync', 'async']) {
      const span = spanNamed(name)
      expect([span?.status_code, span?.status_description]).toEqual(['ERROR', 'out of range'])
    }
    expect(spanNamed('async')?.duration_ms).toBeCloseTo(5, 3)
    expect(spanNamed('null')?.status_description).toBe('null')
  })

  it('row 43: an error whose message is not a string is written as text', async () => {
    const { telemetry, spanNamed } = await startedTelemetry()
    const odd = Object.assign(new Error('x'), { message: 10n as unknown as string })
    await expect(telemetry.spanScope('odd', () => Promise.reject(odd))).rejects.toBe(odd)
    await telemetry.stop()
    expect(spanNamed('odd')?.status_description).toBe('10')
  })

  it('row 43: spans may close out of order', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    const child = Promise.withResolvers<void>()
    let running: Promise<void> | undefined
    await telemetry.spanScope('parent', async () => {
      running = telemetry.spanScope('child', () => child.promise)
      await clock.advance(10)
    })
    await clock.advance(10)
    child.resolve()
    await running
    await telemetry.stop()
    expect(spanNamed('child')?.parent_span_id).toBe(spanNamed('parent')?.span_id)
    expect([spanNamed('parent')?.duration_ms, spanNamed('child')?.duration_ms]).toEqual([
      expect.closeTo(10, 3),
      expect.closeTo(20, 3),
    ])
  })

  it('row 43: a span open at stop is ended once, and its code continues', async () => {
    const { telemetry, clock, folder, spanNamed } = await startedTelemetry()
    const work = Promise.withResolvers<string>()
    const running = telemetry.spanScope('open', () => work.promise)
    await clock.advance(100)
    await telemetry.stop()
    work.resolve('result')
    expect(await running).toBe('result')
    expect(spansIn(folder).map(({ name }) => name)).toEqual(['open', 'session'])
    expect(spanNamed('open')?.status_code).toBe('UNSET')
    expect(spanNamed('open')?.end_time).toBe(spanNamed('session')?.end_time)
  })

  it('row 43: 100,000 open spans are all closed at stop', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    await telemetry.start()
    const held = Promise.withResolvers<void>()
    const open = Array.from({ length: 100_000 }, () =>
      telemetry.spanScope('many', () => held.promise),
    )
    held.resolve()
    await Promise.all(open)
    await clock.advance(1)
    await telemetry.stop()
    const exported = telemetry.exportAsOtlp()
    expect(exported.split('"name":"many"')).toHaveLength(100_001)
  })

  it('row 28: a span never ends before its start when the wall clock goes back', async () => {
    const { telemetry, clock, spanNamed } = await startedTelemetry()
    telemetry.spanScope('stepped', () => clock.stepWall(-3600))
    await telemetry.stop()
    for (const name of ['stepped', 'session']) {
      const span = spanNamed(name)
      expect(span?.end_time).toBe(span?.start_time)
      expect(span?.duration_ms).toBe(0)
    }
  })
})

describe('annotateCurrentSpan', () => {
  it('annotateCurrentSpan: adds the event to the scope or task, as strings', async () => {
    const { telemetry, clock, folder, spanNamed } = await startedTelemetry()
    const received: string[] = []
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'a')
    telemetry.spanScope('scope', () =>
      telemetry.annotateCurrentSpan(mark({ n: 1, ok: true, list: [1, 2], text: 'x', gone: null })),
    )
    runInTask('a', () => telemetry.annotateCurrentSpan(mark({}, { level: 7, detail: { a: [1] } })))
    emitTaskEvent({ sink: telemetry, clock }, TaskCompleted, 'a')
    await telemetry.stop()
    const time = 1_700_000_001
    const given = { n: '1', ok: 'true', list: '[1,2]', text: 'x', gone: 'null' }
    const attributes = { level: '0', detail: 'null', ...given }
    expect(spanNamed('scope')?.events).toEqual([{ name: 'scope.Mark', time, attributes }])
    const own = { level: '7', detail: '{"a":[1]}' }
    expect(spanNamed('task')?.events).toEqual([{ name: 'scope.Mark', time, attributes: own }])
    // An annotation is not an emission.
    expect(received).not.toContain('scope.Mark')
    expect(spansIn(folder).find(({ name }) => name === 'session')?.events).toEqual([])
  })

  it('annotateCurrentSpan: does nothing without a span, before start and after stop', async () => {
    const { telemetry, folder } = openTelemetry()
    telemetry.annotateCurrentSpan(mark())
    await telemetry.start()
    telemetry.annotateCurrentSpan(mark())
    runInTask('nobody', () => telemetry.annotateCurrentSpan(mark()))
    await telemetry.stop()
    telemetry.annotateCurrentSpan(mark())
    expect(spansIn(folder).flatMap(({ events }) => events)).toEqual([])
    expect(() => telemetry.annotateCurrentSpan({} as never)).toThrow(ValueError)
  })

  it('annotateCurrentSpan: does nothing on a scope that has ended', async () => {
    const { telemetry, spanNamed } = await startedTelemetry()
    let leaked: Promise<void> | undefined
    telemetry.spanScope('over', () => {
      leaked = turn().then(() => telemetry.annotateCurrentSpan(mark()))
    })
    await leaked
    await telemetry.stop()
    expect(spanNamed('over')?.events).toEqual([])
    expect(telemetry.exportAsOtlp()).not.toContain('scope.Mark')
  })
})
