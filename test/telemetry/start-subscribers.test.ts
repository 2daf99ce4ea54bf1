import type { SpanProcessor } from '@opentelemetry/sdk-trace'
import { describe, expect, it } from 'vitest'
import { defineEvent } from '../../src/events/define-event.ts'
import { type BaseEvent, stampEvent } from '../../src/events/event.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { eventsIn, openTelemetry, typesOf, withoutFile } from './open-telemetry.ts'

const Tick = defineEvent('bus.Tick', { n: 'int', facts: 'any' })
const upTo = (count: number): number[] => Array.from({ length: count }, (_, n) => n)

describe('row 123: subscribers of the turn in which start resolves', () => {
  /** A processor that takes 40 ms for each span. */
  const slowProcessor = (clock: ManualClock): SpanProcessor => ({
    onStart: () => clock.stepWall(0.04),
    onEnd() {},
    forceFlush: async () => {},
    shutdown: async () => {},
  })

  it('row 123: subscribers get SessionStarted and later events despite slow spans', async () => {
    const clock = new ManualClock()
    const options = { clock, spanProcessors: [slowProcessor(clock)] }
    const { telemetry, folder } = openTelemetry(options)
    const [subscribed, early]: string[][] = [[], []]
    telemetry.subscribe(({ event_type: type }) => void early?.push(type))
    await telemetry.start()
    for (const n of upTo(5000)) {
      telemetry.emit(stampEvent(Tick, clock, { session_id: 's1', backend: 'app', n, facts: null }))
    }
    const flushed = telemetry.flush()
    await Promise.resolve()
    // A busy loop and a full queue do not delay the record.
    const inFirstTurn = eventsIn(folder).length
    const stream = telemetry.events({ overflow: 'block' })
    telemetry.subscribe(({ event_type: type }) => void subscribed?.push(type))
    await flushed
    await telemetry.stop()
    const all = ['SessionStarted', ...upTo(5000).map(() => 'bus.Tick'), 'SessionEnded']
    expect(subscribed).toEqual(all)
    expect(early).toEqual(all)
    const streamed: BaseEvent[] = []
    for await (const event of stream) streamed.push(event)
    expect(typesOf(streamed)).toEqual(all)
    expect(typesOf(eventsIn(folder))).toEqual(all)
    expect(inFirstTurn).toBeGreaterThan(4000)
  })

  it('row 123: subscribers get SessionStarted if telemetry is stopped in that turn', async () => {
    const { telemetry } = openTelemetry(withoutFile)
    const received: string[] = []
    await telemetry.start()
    const stopping = telemetry.stop()
    telemetry.subscribe(({ event_type: type }) => void received.push(type))
    await stopping
    expect(received).toEqual(['SessionStarted', 'SessionEnded'])
  })
})
