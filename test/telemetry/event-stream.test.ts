import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import type { BaseEvent } from '../../src/events/event.ts'
import { makeEvent } from '../../src/events/make-event.ts'
import { ValueError } from '../../src/foundation/errors.ts'
import type { EventStream } from '../../src/telemetry/event-stream.ts'
import { openTelemetry, turn, typesOf, withoutFile } from './open-telemetry.ts'

const Step = defineEvent('stream.Step', { n: 'int' })
const step = (n: number) => makeEvent(Step, { session_id: 's1', backend: 'app', n })
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n)

async function readAll(stream: EventStream): Promise<BaseEvent[]> {
  const events: BaseEvent[] = []
  for await (const event of stream) events.push(event)
  return events
}

const numbersOf = (events: readonly BaseEvent[]): unknown[] =>
  events.map((event) => (event as BaseEvent & { n?: unknown }).n)

describe('events()', () => {
  it('events(): yields every event in order and ends at stop', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const reading = readAll(telemetry.events())
    await telemetry.start()
    telemetry.emit(step(1))
    await turn()
    telemetry.emit(step(2))
    await telemetry.stop()
    const events = await reading
    expect(typesOf(events)).toEqual([
      'SessionStarted',
      'stream.Step',
      'stream.Step',
      'SessionEnded',
    ])
  })

  it('events(): yields only the requested types', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const reading = readAll(telemetry.events({ types: ['SessionEnded', 'stream.Step'] }))
    await telemetry.start()
    telemetry.emit(step(1))
    await telemetry.stop()
    expect(typesOf(await reading)).toEqual(['stream.Step', 'SessionEnded'])
  })

  it('events(): can be read after stop; opened after stop it ends at once', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const stream = telemetry.events()
    await telemetry.start()
    telemetry.emit(step(1))
    await telemetry.stop()
    expect(typesOf(await readAll(stream))).toEqual([
      'SessionStarted',
      'stream.Step',
      'SessionEnded',
    ])
    expect(await readAll(telemetry.events())).toEqual([])
    expect(await stream.next()).toEqual({ done: true, value: undefined })
  })

  it('events(): ends at stop when telemetry was never started', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const reading = readAll(telemetry.events())
    await telemetry.stop()
    expect(await reading).toEqual([])
  })

  it('events(): several waiting readers get events in order', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const stream = telemetry.events({ types: ['stream.Step'] })
    const waiting = [stream.next(), stream.next(), stream.next()]
    await telemetry.start()
    telemetry.emit(step(1))
    telemetry.emit(step(2))
    await telemetry.stop()
    const results = await Promise.all(waiting)
    expect(results.map(({ done }) => done)).toEqual([false, false, true])
    expect(numbersOf(results.slice(0, 2).map(({ value }) => value as BaseEvent))).toEqual([1, 2])
  })

  it('events(): a break out of the loop unsubscribes', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const stream = telemetry.events({ limit: 1 })
    await telemetry.start()
    telemetry.emit(step(0))
    for await (const event of stream) {
      expect(event).toBeDefined()
      break
    }
    const { dropped } = stream
    for (const n of upTo(100)) telemetry.emit(step(n))
    await telemetry.stop()
    expect(stream.dropped).toBe(dropped)
    expect(await readAll(stream)).toEqual([])
  })

  it('events(): wrong options are rejected by name', () => {
    const { telemetry } = openTelemetry(withoutFile)
    const wrong: [object, string][] = [
      [{ limit: 0 }, 'limit'],
      [{ limit: 1.5 }, 'limit'],
      [{ overflow: 'drop' }, 'overflow'],
      [{ types: 'TaskStarted' }, 'types'],
      [{ type: ['x'] }, 'type'],
    ]
    for (const [options, field] of wrong) {
      expect(() => telemetry.events(options)).toThrow(expect.objectContaining({ field }))
    }
    expect(() => telemetry.events(null as never)).toThrow(ValueError)
  })
})

describe('row 34: a slow reader', () => {
  it('row 34: with drop-oldest the newest are kept and the others counted exactly', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    await telemetry.start()
    await turn()
    const stream = telemetry.events({ types: ['stream.Step'], limit: 10 })
    for (const n of upTo(10_000)) telemetry.emit(step(n))
    await turn()
    expect(stream.dropped).toBe(9990)
    const first = await stream.next()
    expect(numbersOf([first.value as BaseEvent])).toEqual([9990])
    telemetry.emit(step(10_000))
    telemetry.emit(step(10_001))
    await telemetry.stop()
    const rest = numbersOf(await readAll(stream))
    expect(rest).toEqual(upTo(10).map((at) => 9992 + at))
    expect(stream.dropped).toBe(9991)
  })

  it('row 34: with block every event is kept for a late reader, and nobody waits', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    const stream = telemetry.events({ types: ['stream.Step'], limit: 10, overflow: 'block' })
    await telemetry.start()
    for (const n of upTo(100_000)) telemetry.emit(step(n))
    await telemetry.stop()
    expect(clock.pendingTimers).toBe(0)
    expect(numbersOf(await readAll(stream))).toEqual(upTo(100_000))
    expect(stream.dropped).toBe(0)
  })

  it('row 34: a slow reader loses nothing within its limit', async () => {
    const { telemetry, clock } = openTelemetry(withoutFile)
    const stream = telemetry.events({ types: ['stream.Step'], limit: 100 })
    const read: BaseEvent[] = []
    const reading = (async () => {
      for await (const event of stream) {
        read.push(event)
        await new Promise<void>((resolve) => clock.after(100, resolve))
      }
    })()
    await telemetry.start()
    for (const n of upTo(101)) telemetry.emit(step(n))
    await telemetry.stop()
    for (const _ of upTo(102)) await clock.advance(100)
    await reading
    expect(numbersOf(read)).toEqual(upTo(101))
    expect(stream.dropped).toBe(0)
  })
})
