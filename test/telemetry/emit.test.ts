import { readFileSync, readdirSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { BaseEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { TaskCreated } from '../../src/events/vocabulary.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import {
  eventsIn,
  linesIn,
  openTelemetry,
  emitTaskEvent,
  typesOf,
  withoutFile,
} from './open-telemetry.ts'
import { assertProperty } from '../property.ts'

const Fact = defineEvent('emit.Fact', { n: 'int', value: 'any' })
const fact = (n: number, fields: object = {}) =>
  makeEvent(Fact, { session_id: 's1', backend: 'app', n, ...fields })

const emitMany = (sink: { emit(event: BaseEvent): void }, count: number): void => {
  for (let n = 0; n < count; n++) sink.emit(fact(n))
}

describe('row 37: emit at the wrong time or with a wrong value', () => {
  it('row 37: 1000 events before start wait and follow SessionStarted', async () => {
    const { telemetry, warnings, folder } = openTelemetry()
    emitMany(telemetry, 1000)
    expect(telemetry.droppedEvents).toBe(0)
    emitMany(telemetry, 7)
    expect(telemetry.droppedEvents).toBe(7)
    await telemetry.start()
    await telemetry.stop()
    const events = eventsIn(folder)
    expect(events[0]?.event_type).toBe('SessionStarted')
    expect(events.slice(1, -1).map((line) => line['n'])).toEqual(
      Array.from({ length: 1000 }, (_, n) => n),
    )
    expect(warnings.map(({ code }) => code)).toEqual(['EventsDropped'])
    expect(warnings[0]?.message).toContain('1000 events before start()')
  })

  it('row 37: events after stop are dropped and counted, with one warning', async () => {
    const { telemetry, clock, warnings, folder } = openTelemetry()
    const received: string[] = []
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    await telemetry.start()
    await telemetry.stop()
    const before = linesIn(folder).length
    emitMany(telemetry, 5)
    emitTaskEvent({ sink: telemetry, clock }, TaskCreated, 'late')
    await telemetry.flush()
    expect(telemetry.droppedEvents).toBe(6)
    expect(warnings).toEqual([
      { code: 'EventsDropped', message: 'emit.Fact was dropped: it was emitted after stop()' },
    ])
    expect(received).toEqual(['SessionStarted', 'SessionEnded'])
    expect(linesIn(folder)).toHaveLength(before)
    expect(telemetry.taskSpans()).toEqual([])
  })

  it('row 37: events that wait for a start that never comes are counted at stop', async () => {
    const { telemetry, warnings } = openTelemetry(withoutFile)
    emitMany(telemetry, 3)
    await telemetry.stop()
    emitMany(telemetry, 1)
    expect(telemetry.droppedEvents).toBe(4)
    expect(warnings).toHaveLength(1)
  })

  it('row 37: a value that is not an event is rejected with its class, at any time', async () => {
    const { telemetry, folder } = openTelemetry()
    class Lookalike {
      readonly event_type = 'TaskCreated'
    }
    const { proxy: revoked, revoke } = Proxy.revocable({}, {})
    revoke()
    const wrong: [unknown, string][] = [
      [null, '`null`'],
      [undefined, '`undefined`'],
      ['TaskCreated', '(string)'],
      [{ event_type: 'TaskCreated' }, '(object)'],
      [new Lookalike(), 'got an instance of Lookalike'],
      [[], '(array)'],
      [TaskCreated, 'TaskCreated` (function)'],
      [revoked, '`unprintable` (object)'],
    ]
    const refuseAll = (): void => {
      for (const [value, shown] of wrong) {
        const emit = () => telemetry.emit(value as BaseEvent)
        expect(emit).toThrow(ValueError)
        expect(emit).toThrow(shown)
        expect(() => telemetry.annotateCurrentSpan(value as BaseEvent)).toThrow(ValueError)
      }
    }
    refuseAll()
    await telemetry.start()
    refuseAll()
    await telemetry.stop()
    refuseAll()
    expect(telemetry.droppedEvents).toBe(0)
    expect(typesOf(eventsIn(folder))).toEqual(['SessionStarted', 'SessionEnded'])
  })
})

describe('row 38: attributes that JSON cannot represent', () => {
  it('row 38: values that JSON cannot represent are replaced, and the line is valid', async () => {
    const { telemetry, folder } = openTelemetry()
    const cycle: Record<string, unknown> = { name: 'cycle' }
    cycle['self'] = cycle
    const attributes = {
      big: 10n,
      cycle,
      call: () => {},
      json: {
        toJSON(): never {
          throw new Error('no')
        },
      },
      get getter(): never {
        throw new Error('no')
      },
      proxy: new Proxy(
        {},
        {
          ownKeys() {
            throw new Error('no')
          },
        },
      ),
      nan: Number.NaN,
      infinite: -Infinity,
      long: 'x'.repeat(5_242_880),
      lone: '\ud800',
      date: new Date(0),
      gone: undefined,
      fine: [1, { two: '2' }],
    }
    await telemetry.start()
    telemetry.emit(fact(1, { attributes, value: attributes }))
    await telemetry.stop()
    const line = eventsIn(folder)[1]
    const expected = {
      big: '[unserializable: BigInt]',
      cycle: { name: 'cycle', self: '[unserializable: cycle]' },
      call: '[unserializable: function]',
      json: '[unserializable: throws]',
      getter: '[unserializable: throws]',
      proxy: '[unserializable: throws]',
      nan: null,
      infinite: null,
      long: `${'x'.repeat(131_072)}...[truncated 5242880]`,
      lone: '\ud800',
      date: '1970-01-01T00:00:00.000Z',
      fine: [1, { two: '2' }],
    }
    expect(line?.attributes).toEqual(expected)
    expect(line?.['value']).toEqual(expected)
    expect(Object.isFrozen(cycle)).toBe(false)
  })

  it('row 38: an event with gigabytes of text does not stop the bus', async () => {
    const { telemetry, folder } = openTelemetry()
    const text = 'x'.repeat(100_000)
    const attributes = { texts: Array.from({ length: 20_000 }, () => text) }
    await telemetry.start()
    telemetry.emit(fact(1, { attributes }))
    telemetry.emit(fact(2))
    await telemetry.stop()
    const [big, next] = eventsIn(folder).slice(1)
    const texts = big?.attributes['texts'] as string[]
    expect(texts.length).toBeLessThan(100)
    expect(texts.at(-1)).toBe('[unserializable: too large]')
    expect(next?.['n']).toBe(2)
  })

  it('row 38: an event of a class that JSON cannot represent is written', async () => {
    class Foreign extends BaseEvent {
      readonly amount = 10n
      constructor() {
        super('foreign.Event', { session_id: 's1', backend: 'app' }, 1)
      }
    }
    const { telemetry, folder } = openTelemetry()
    const received: string[] = []
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    await telemetry.start()
    telemetry.emit(new Foreign())
    telemetry.emit(fact(2))
    await telemetry.stop()
    expect(received).toEqual(['SessionStarted', 'foreign.Event', 'emit.Fact', 'SessionEnded'])
    expect(eventsIn(folder)[1]).toMatchObject({
      event_type: 'foreign.Event',
      amount: '[unserializable: BigInt]',
    })
  })

  it('row 38: with any attributes no event is lost and every line is valid', async () => {
    const { telemetry, folder } = openTelemetry()
    await telemetry.start()
    let emitted = 0
    const anything = fc.anything({ withBigInt: true, withBoxedValues: true, withDate: true })
    assertProperty(
      fc.property(fc.dictionary(fc.string({ unit: 'binary' }), anything), (attributes) => {
        telemetry.emit(fact(emitted++, { attributes }))
      }),
      { numRuns: 150 },
    )
    await telemetry.stop()
    const numbers = eventsIn(folder).flatMap((line) => (line['n'] === undefined ? [] : [line['n']]))
    expect(numbers).toEqual(Array.from({ length: emitted }, (_, n) => n))
    expect(emitted).toBe(150)
  })
})

describe('flush', () => {
  it('flush: resolves when everything emitted before is on file', async () => {
    const { telemetry, folder } = openTelemetry()
    await telemetry.start()
    for (let round = 1; round <= 5; round++) {
      emitMany(telemetry, 100)
      await telemetry.flush()
      expect(eventsIn(folder)).toHaveLength(1 + round * 100)
    }
    await telemetry.stop()
    await telemetry.flush()
  })

  it('flush: called by a subscriber, includes the rest of the batch', async () => {
    const { telemetry, folder } = openTelemetry()
    const flushed = Promise.withResolvers<void>()
    let linesThen = 0
    telemetry.subscribe(async ({ event_type: type }) => {
      if (type !== 'SessionStarted') return
      await telemetry.flush()
      linesThen = eventsIn(folder).length
      flushed.resolve()
    })
    await telemetry.start()
    emitMany(telemetry, 9)
    await flushed.promise
    expect(linesThen).toBe(10)
    await telemetry.stop()
  })

  it('emit: events are on file after the turn that dispatches them, without a flush', async () => {
    const { telemetry, folder } = openTelemetry()
    await telemetry.start()
    telemetry.emit(fact(1))
    await new Promise((resolve) => setImmediate(resolve))
    const file = readdirSync(folder).find((name) => name.endsWith('.jsonl')) ?? ''
    expect(readFileSync(join(folder, file), 'utf8').trimEnd().split('\n')).toHaveLength(2)
    await telemetry.stop()
  })
})
