import { AsyncLocalStorage } from 'node:async_hooks'
import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { type BaseEvent, stampEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import { currentTask, runInTask } from '../../src/foundation/task-context.ts'
import { systemClock } from '../../src/foundation/clock.ts'
import {
  eventsIn,
  linesIn,
  openTelemetry,
  turn,
  turns,
  typesOf,
  withoutFile,
} from './open-telemetry.ts'

const Tick = defineEvent('bus.Tick', { n: 'int', facts: 'any' })
const tick = (n: number, fields: object = {}) =>
  makeEvent(Tick, { session_id: 's1', backend: 'app', n, ...fields })
const numberOf = (event: BaseEvent): unknown => (event as BaseEvent & { n?: unknown }).n
const isTick = (event: BaseEvent): boolean => event.event_type === 'bus.Tick'
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n)

describe('subscribe', () => {
  it('subscribe: event_type narrows the type of an event', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    let seconds: number | null = null
    telemetry.subscribe((event) => {
      if (event.event_type === 'SessionEnded') seconds = event.duration_seconds
    })
    const stream = telemetry.events({ types: ['SessionEnded'] })
    await telemetry.start()
    await telemetry.stop()
    expect(seconds).toBe(0)
    for await (const event of stream) {
      if (event.event_type === 'SessionEnded') expect(event.duration_seconds).toBe(seconds)
    }
  })

  it('subscribe: delivers every event, custom ones too, until unsubscribed', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const [kept, left]: string[][] = [[], []]
    telemetry.subscribe(({ event_type: type }) => void kept?.push(type))
    const unsubscribe = telemetry.subscribe(({ event_type: type }) => void left?.push(type))
    await telemetry.start()
    telemetry.emit(tick(1))
    await turn()
    unsubscribe()
    unsubscribe()
    telemetry.emit(tick(2))
    await telemetry.stop()
    expect(kept).toEqual(['SessionStarted', 'bus.Tick', 'bus.Tick', 'SessionEnded'])
    expect(left).toEqual(['SessionStarted', 'bus.Tick'])
    expect(() => telemetry.subscribe('x' as never)).toThrow(ValueError)
  })

  it('subscribe: a subscriber removed by another one is not called', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const received: BaseEvent[] = []
    telemetry.subscribe(() => unsubscribe())
    const unsubscribe = telemetry.subscribe((event) => void received.push(event))
    await telemetry.start()
    await telemetry.stop()
    expect(received).toEqual([])
  })

  it('subscribe: a removed subscriber loses its backlog, and stop does not wait', async () => {
    const { telemetry, warnings } = openTelemetry(withoutFile)
    const received: unknown[] = []
    await telemetry.start()
    await turn()
    const unsubscribe = telemetry.subscribe((event) => {
      received.push(numberOf(event))
      return new Promise(() => {})
    })
    for (const n of upTo(5)) telemetry.emit(tick(n))
    await turn()
    const stopping = telemetry.stop()
    await turn()
    unsubscribe()
    await stopping
    expect(received).toEqual([0])
    expect(warnings).toEqual([])
  })

  it('subscribe: callbacks run in the async context of start, not of the emitter', async () => {
    const place = new AsyncLocalStorage<string>()
    const { telemetry } = openTelemetry(withoutFile)
    const seen = new Set<string>()
    telemetry.subscribe(async () => {
      seen.add(`${place.getStore()} ${currentTask()?.uid}`)
      await turn()
      seen.add(`${place.getStore()} ${currentTask()?.uid}`)
    })
    await place.run('start', () => telemetry.start())
    // Enough of them to be dispatched inside the emitter's own call.
    place.run('emitter', () =>
      runInTask('a', () => upTo(10_000).forEach((n) => telemetry.emit(tick(n)))),
    )
    await place.run('stop', () => telemetry.stop())
    expect([...seen]).toEqual(['start undefined'])
  })

  it('subscribe: events arrive within a turn, and while a burst blocks the loop', async () => {
    const { telemetry } = openTelemetry({ ...withoutFile, clock: systemClock })
    const received: unknown[] = []
    let emitted = 0
    let emittedAtFirst = -1
    telemetry.subscribe((event) => {
      if (!isTick(event)) return
      if (received.length === 0) emittedAtFirst = emitted
      received.push(numberOf(event))
    })
    await telemetry.start()
    telemetry.emit(tick(-1))
    await turn()
    expect(received).toEqual([-1])
    received.length = 0
    for (const n of upTo(100_000)) {
      telemetry.emit(tick(n))
      emitted++
    }
    expect(emittedAtFirst).toBeLessThan(10_000)
    await turn()
    expect(received).toEqual(upTo(100_000))
    await telemetry.stop()
  })
})

describe('row 33: subscribers that fail', () => {
  it('row 33: a failing subscriber is reported once a minute, with the count', async () => {
    const { telemetry, clock, folder } = openTelemetry()
    const received: string[] = []
    let thrown = 0
    let rejected = 0
    telemetry.subscribe(function thrower() {
      thrown++
      throw new RangeError('no')
    })
    telemetry.subscribe(async function rejecter() {
      rejected++
      await turn()
      throw new Error('later')
    })
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    await telemetry.start()
    for (const n of upTo(9)) telemetry.emit(tick(n))
    await turns(40)
    const reports = () => eventsIn(folder).filter(({ name }) => name === 'tutti.SubscriberError')
    const facts = () => reports().map((line) => [line['subscriber'], line['count']])
    expect(facts()).toEqual([
      ['thrower', 1],
      ['rejecter', 1],
    ])
    // Never removed: SessionStarted, nine ticks and the two reports.
    expect([thrown, rejected]).toEqual([12, 12])
    await clock.advance(59_000)
    telemetry.emit(tick(9))
    await turns(40)
    expect(facts()).toHaveLength(2)
    await clock.advance(1000)
    telemetry.emit(tick(10))
    await turns(40)
    expect(facts().slice(2)).toEqual([
      ['thrower', 13],
      ['rejecter', 13],
    ])
    expect(reports()[0]).toMatchObject({ message: 'no', backend: 'tutti', session_id: 's1' })
    await telemetry.stop()
    expect(received.filter((type) => type === 'bus.Tick')).toHaveLength(11)
    expect(received.at(-1)).toBe('SessionEnded')
  })

  it('row 33: whatever a subscriber throws or returns, the others get every event', async () => {
    const { telemetry, folder } = openTelemetry()
    const received: unknown[] = []
    const thrown = [null, undefined, 'text', { message: 10n }, Object.create(null), Symbol('x')]
    for (const value of thrown) {
      telemetry.subscribe(() => {
        throw value
      })
    }
    telemetry.subscribe(() => ({
      then(settle: () => void) {
        settle()
        settle()
      },
    }))
    telemetry.subscribe(() => ({
      get then(): never {
        throw new Error('not even a then')
      },
    }))
    telemetry.subscribe((event) => void (isTick(event) && received.push(numberOf(event))))
    await telemetry.start()
    for (const n of upTo(3)) telemetry.emit(tick(n))
    await telemetry.stop()
    expect(received).toEqual([0, 1, 2])
    const reports = eventsIn(folder).filter(({ name }) => name === 'tutti.SubscriberError')
    expect(reports.map((line) => typeof line['message'])).toEqual(
      [...thrown, 'getter'].map(() => 'string'),
    )
  })

  it('row 33: a promise that never settles delays stop until its deadline', async () => {
    const { telemetry, clock, warnings, folder } = openTelemetry({ stopDeadlineSeconds: 3 })
    const received: string[] = []
    telemetry.subscribe(function stuck() {
      return new Promise(() => {})
    })
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    await telemetry.start()
    for (const n of upTo(4)) telemetry.emit(tick(n))
    await turn()
    let hasStopped = false
    const stopping = telemetry.stop().then(() => (hasStopped = true))
    await turn()
    await clock.advance(2999)
    expect(hasStopped).toBe(false)
    await clock.advance(1)
    await clock.advance(0)
    await stopping
    expect(warnings).toEqual([
      { code: 'SubscribersLate', message: 'stop() no longer waits for: stuck (6 events)' },
    ])
    expect(received.at(-1)).toBe('SessionEnded')
    expect(linesIn(folder).at(-1)?.section).toBe('metric')
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('row 34: slow subscribers', () => {
  it('row 34: an async subscriber gets every event in order and delays nobody', async () => {
    const { telemetry, clock, folder } = openTelemetry({ stopDeadlineSeconds: 86_400 })
    const slow: unknown[] = []
    const fast: unknown[] = []
    telemetry.subscribe(async (event) => {
      if (!isTick(event)) return
      await new Promise<void>((resolve) => clock.after(100, resolve))
      slow.push(numberOf(event))
    })
    telemetry.subscribe((event) => void (isTick(event) && fast.push(numberOf(event))))
    await telemetry.start()
    for (const n of upTo(10_000)) telemetry.emit(tick(n))
    await turn()
    expect(fast).toEqual(upTo(10_000))
    await telemetry.flush()
    expect(eventsIn(folder).filter(({ name }) => name === 'bus.Tick')).toHaveLength(10_000)
    expect(slow).toEqual([])
    const stopping = telemetry.stop()
    await clock.advance(1_000_000)
    await stopping
    expect(slow).toEqual(upTo(10_000))
  })

  it('row 34: a subscriber with resolved promises does not block the event loop', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const received: unknown[] = []
    const held = Promise.withResolvers<void>()
    telemetry.subscribe(async (event) => {
      await held.promise
      if (isTick(event)) received.push(numberOf(event))
    })
    await telemetry.start()
    for (const n of upTo(5000)) telemetry.emit(tick(n))
    await telemetry.flush()
    held.resolve()
    let passed = 0
    for (; received.length < 5000; passed++) await turn()
    expect(received).toEqual(upTo(5000))
    expect(passed).toBeGreaterThan(3)
    await telemetry.stop()
  })
})

describe('row 35: subscribers that emit', () => {
  it('row 35: events that a subscriber emits are queued, without recursion', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    // On the clock of the test: in a loop that takes long the bus dispatches meanwhile.
    const tickNow = (n: number): BaseEvent =>
      stampEvent(Tick, clock, { session_id: 's1', backend: 'app', n, facts: null })
    const received: unknown[] = []
    let depth = 0
    let deepest = 0
    telemetry.subscribe((event) => {
      deepest = Math.max(deepest, ++depth)
      const n = numberOf(event)
      if (typeof n === 'number' && n < 100) telemetry.emit(tickNow(n + 100))
      depth--
    })
    telemetry.subscribe((event) => void (isTick(event) && received.push(numberOf(event))))
    await telemetry.start()
    await turn()
    for (const n of upTo(100)) telemetry.emit(tickNow(n))
    await telemetry.stop()
    expect(received).toEqual(upTo(200))
    expect(deepest).toBe(1)
  })

  it('row 35: a subscriber that emits endlessly is reported, and stop resolves', async () => {
    const { telemetry, clock, warnings, folder } = openTelemetry()
    telemetry.subscribe(() => telemetry.emit(tick(0)))
    await telemetry.start()
    await turns(1100)
    const loops = warnings.filter(({ code }) => code === 'SubscriberLoop')
    expect(loops).toHaveLength(1)
    expect(loops[0]?.message).toContain('bus.Tick')
    const stopping = telemetry.stop()
    await turns(10)
    await clock.advance(5000)
    await stopping
    expect(typesOf(eventsIn(folder)).at(-1)).toBe('SessionEnded')
    expect(typesOf(eventsIn(folder)).filter((type) => type === 'SessionEnded')).toHaveLength(1)
    expect(telemetry.droppedEvents).toBeGreaterThan(0)
  })

  it.each(['synchronous', 'asynchronous'])(
    'row 35: events that a subscriber emits count, also while stop drains: %s',
    async (kind) => {
      const { telemetry, folder } = openTelemetry()
      let emitted = 0
      const emitNext = (): void => {
        if (emitted < 3000) telemetry.emit(tick(emitted++))
      }
      telemetry.subscribe(() => (kind === 'synchronous' ? emitNext() : turn().then(emitNext)))
      await telemetry.start()
      await telemetry.stop()
      const written = eventsIn(folder)
      expect(written.filter(({ name }) => name === 'bus.Tick')).toHaveLength(3000)
      expect(written.at(-1)?.event_type).toBe('SessionEnded')
      expect(telemetry.droppedEvents).toBe(0)
    },
  )

  it('row 35: many events emitted in one drain are all delivered', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    let received = 0
    telemetry.subscribe((event) => {
      if (!isTick(event)) return
      received++
      if (numberOf(event) === 0) for (const n of upTo(20_000)) telemetry.emit(tick(n + 1))
    })
    await telemetry.start()
    telemetry.emit(tick(0))
    await telemetry.stop()
    expect(received).toBe(20_001)
  })
})

describe('row 36: subscribers that write', () => {
  it('row 36: events are deeply frozen, so a subscriber cannot change them', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const given = { list: [{ deep: true }] }
    const event = tick(1, { facts: given, attributes: given })
    const attempts: (() => unknown)[] = [
      () => Object.assign(event, { n: 2 }),
      () => Object.assign(event, { added: 1 }),
      () => Object.assign(event.attributes, { added: 1 }),
      () => (event.attributes['list'] as unknown[]).push(1),
      () => Object.assign((event.facts as typeof given).list[0] ?? {}, { deep: false }),
      () => Reflect.deleteProperty(event, 'n') || raise(),
    ]
    const seen: string[] = []
    telemetry.subscribe((received) => {
      if (isTick(received)) for (const attempt of attempts) expect(attempt).toThrow(TypeError)
    })
    telemetry.subscribe((received) => void seen.push(JSON.stringify(received)))
    const before = JSON.stringify(event)
    await telemetry.start()
    telemetry.emit(event)
    await telemetry.stop()
    expect(seen[1]).toBe(before)
    // No attempt succeeded, or there would be a report.
    expect(seen).toHaveLength(3)
    expect(Object.isFrozen(given) || Object.isFrozen(given.list)).toBe(false)
  })
})

function raise(): never {
  throw new TypeError('refused')
}
