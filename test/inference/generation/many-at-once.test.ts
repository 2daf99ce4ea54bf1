import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { Alarms } from '../../../src/inference/generation/alarms.ts'
import { AbortRegistry } from '../../../src/runtime/abort-registry.ts'
import { Ticket } from '../../../src/inference/generation/ticket.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { Asker } from './asker.ts'
import { open } from './open-batcher.ts'

describe('many requests with one signal', () => {
  const openShared = (count: number) => {
    const scene = open({ script: () => ({ delayMs: 10 }) })
    const { signal, leave } = new Leaver()
    const askers = Array.from({ length: count }, (_, at) => new Asker(scene.clock, `r${at}`))
    for (const asker of askers) {
      const queued = asker.toQueued()
      scene.batcher.enqueue({ ...queued, request: { ...queued.request, signal } })
    }
    return { ...scene, signal, leave, askers }
  }

  it('have one listener together, until the last of them has ended', async () => {
    const { signal, askers, pass } = openShared(20)
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    await pass(10)
    expect(askers.map(({ outcome }) => outcome)).toEqual(askers.map(() => 'done'))
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('leave together, each once, from the queue and from the engine', async () => {
    const { signal, askers, batcher, worker, leave, pass, ask } = openShared(20)
    await pass(5)
    const other = ask('other')
    leave()
    expect(askers.map(({ outcome }) => outcome)).toEqual(askers.map(() => 'canceled'))
    expect(getEventListeners(signal, 'abort')).toEqual([])
    await pass(20)
    expect(askers.every(({ ends, late }) => ends.length === 1 && late === 0)).toBe(true)
    expect([other.outcome, batcher.running, worker.calls.at(-1)]).toEqual(['done', 0, ['other']])
  })

  it('a ticket that ends while another leaves does not leave', () => {
    const left: number[] = []
    const watch = new AbortRegistry<Ticket>((ticket) => {
      left.push(ticket.number)
      for (const one of tickets) one.end({ kind: 'canceled' })
    })
    const { signal, leave } = new Leaver()
    const tickets = [0, 1, 2].map((number) => {
      const queued = new Asker(new ManualClock(), `r${number}`).toQueued()
      return new Ticket({ ...queued, request: { ...queued.request, signal } }, number, 0, watch)
    })
    leave()
    expect(left).toEqual([0])
  })
})

class Leaver {
  readonly #abort = new AbortController()
  readonly signal = this.#abort.signal
  readonly leave = (): void => this.#abort.abort()
}

describe('many alarms at one time', () => {
  it('ring a thousand a turn, each once, and those that are due later in their time', async () => {
    const clock = new ManualClock()
    const turns: (() => void)[] = []
    clock.nextTurn = (callback) => void turns.push(callback)
    const rung: number[] = []
    const alarms = new Alarms(clock, ({ number }) => rung.push(number))
    const watch = new AbortRegistry<Ticket>(() => {})
    const tickets = Array.from({ length: 2502 }, (_, at) => {
      const ticket = new Ticket(new Asker(clock, `r${at}`).toQueued(), at, 0, watch)
      alarms.set(ticket, at < 2500 ? 10 : at)
      return ticket
    })
    await clock.advance(10)
    expect([rung.length, turns.length]).toEqual([1000, 1])
    // An alarm that is set meanwhile and comes due rings with the others, not beside them.
    const late = new Ticket(new Asker(clock, 'late').toQueued(), 9999, 0, watch)
    alarms.set(late, 11)
    await clock.advance(1)
    expect([rung.length, turns.length]).toEqual([1000, 1])
    turns.shift()?.()
    expect([rung.length, turns.length]).toEqual([2000, 1])
    turns.shift()?.()
    expect([rung.length, turns.length, rung.at(-1)]).toEqual([2501, 0, 9999])
    await clock.advance(2490)
    expect(rung.slice(2501)).toEqual([2500, 2501])
    expect(new Set(rung).size).toBe(tickets.length + 1)
    expect(clock.pendingTimers).toBe(0)
  })
})
