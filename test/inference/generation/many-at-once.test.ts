import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { AbortRegistry } from '../../../src/runtime/abort-registry.ts'
import { QueuedRequest } from '../../../src/inference/generation/request-queue.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { TestClient } from './test-client.ts'
import { open } from './open-batcher.ts'

describe('many requests with one signal', () => {
  const openShared = (count: number) => {
    const scene = open({ script: () => ({ delayMs: 10 }) })
    const { signal, leave } = new Leaver()
    const askers = Array.from({ length: count }, (_, at) => new TestClient(scene.clock, `r${at}`))
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
    const watch = new AbortRegistry<QueuedRequest>((ticket) => {
      left.push(ticket.number)
      for (const one of tickets) one.end({ kind: 'canceled' })
    })
    const { signal, leave } = new Leaver()
    const tickets = [0, 1, 2].map((number) => {
      const queued = new TestClient(new ManualClock(), `r${number}`).toQueued()
      return new QueuedRequest(
        { ...queued, request: { ...queued.request, signal } },
        number,
        0,
        watch,
      )
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
