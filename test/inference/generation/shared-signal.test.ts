import { getEventListeners } from 'node:events'
import { describe, expect, it } from 'vitest'
import { AbortRegistry } from '../../../src/runtime/abort-registry.ts'
import { QueuedRequest } from '../../../src/inference/generation/request-queue.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { TestClient } from './test-client.ts'
import { open } from './open-batcher.ts'

describe('requests that share an AbortSignal', () => {
  const openShared = (count: number) => {
    const setup = open({ script: () => ({ delayMs: 10 }) })
    const { signal, abort } = new SharedSignal()
    const clients = Array.from({ length: count }, (_, at) => new TestClient(setup.clock, `r${at}`))
    for (const client of clients) {
      const queued = client.toOptions()
      setup.batcher.enqueue({ ...queued, request: { ...queued.request, signal } })
    }
    return { ...setup, signal, abort, clients }
  }

  it('requests that share a signal add one listener, removed with the last request', async () => {
    const { signal, clients, pass } = openShared(20)
    expect(getEventListeners(signal, 'abort')).toHaveLength(1)
    await pass(10)
    expect(clients.map(({ outcome }) => outcome)).toEqual(clients.map(() => 'done'))
    expect(getEventListeners(signal, 'abort')).toEqual([])
  })

  it('requests that share a signal are all canceled once, in queue and engine', async () => {
    const { signal, clients, batcher, worker, abort, pass, send } = openShared(20)
    await pass(5)
    const other = send('other')
    abort()
    expect(clients.map(({ outcome }) => outcome)).toEqual(clients.map(() => 'canceled'))
    expect(getEventListeners(signal, 'abort')).toEqual([])
    await pass(20)
    expect(clients.every(({ ends, late }) => ends.length === 1 && late === 0)).toBe(true)
    expect([other.outcome, batcher.running, worker.calls.at(-1)]).toEqual(['done', 0, ['other']])
  })

  it('a request that ends while another is being canceled is not canceled', () => {
    const canceled: number[] = []
    const aborts = new AbortRegistry<QueuedRequest>((request) => {
      canceled.push(request.arrivalIndex)
      for (const one of requests) one.end({ kind: 'canceled' })
    })
    const { signal, abort } = new SharedSignal()
    const requests = [0, 1, 2].map((number) => {
      const queued = new TestClient(new ManualClock(), `r${number}`).toOptions()
      return new QueuedRequest(
        { ...queued, request: { ...queued.request, signal } },
        number,
        0,
        aborts,
      )
    })
    abort()
    expect(canceled).toEqual([0])
  })
})

class SharedSignal {
  readonly #abort = new AbortController()
  readonly signal = this.#abort.signal
  readonly abort = (): void => this.#abort.abort()
}
