import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { once, Service } from '../../src/foundation/service.ts'
import { assertProperty } from '../property.ts'

class Recorded extends Service {
  readonly calls: string[] = []
  readonly #failure: Error | undefined

  constructor(failure?: Error) {
    super()
    this.#failure = failure
  }

  protected override async onStart(): Promise<void> {
    this.calls.push('start')
    await new Promise((resolve) => setImmediate(resolve))
    if (this.#failure !== undefined) throw this.#failure
    this.calls.push('started')
  }

  protected override async onStop(): Promise<void> {
    this.calls.push('stop')
    await new Promise((resolve) => setImmediate(resolve))
    this.calls.push('stopped')
  }

  protected override onAbandon(): void {
    this.calls.push('abandoned')
  }
}

describe('row 41: a service', () => {
  it('row 41: any interleaving of start and stop does each once, in order', async () => {
    const step = fc.constantFrom('start', 'stop', 'wait')
    await assertProperty(
      fc.asyncProperty(fc.array(step, { maxLength: 8 }), async (steps) => {
        const service = new Recorded()
        const promises: Promise<void>[] = []
        for (const one of steps) {
          if (one === 'wait') await new Promise((resolve) => setImmediate(resolve))
          else promises.push(service[one]())
        }
        await Promise.all(promises)
        const first = steps.find((one) => one !== 'wait')
        const isStopped = steps.includes('stop')
        const expected =
          first === 'start'
            ? ['start', 'started', ...(isStopped ? ['stop', 'stopped'] : [])]
            : isStopped
              ? ['abandoned']
              : []
        expect(service.calls).toEqual(expected)
      }),
      { numRuns: 200 },
    )
  })

  it('row 41: everybody gets the same promise', async () => {
    const service = new Recorded()
    const starting = service.start()
    expect(service.start()).toBe(starting)
    const stopping = service.stop()
    expect(service.stop()).toBe(stopping)
    expect(service[Symbol.asyncDispose]()).toBe(stopping)
    await stopping
    expect(service.start()).toBe(starting)
  })

  it('row 41: a failed start rejects for all, and stop resolves without stopping', async () => {
    const failure = new Error('no')
    const service = new Recorded(failure)
    const starting = service.start()
    const stopping = service.stop()
    await expect(starting).rejects.toBe(failure)
    await expect(service.start()).rejects.toBe(failure)
    await stopping
    expect(service.calls).toEqual(['start', 'abandoned'])
  })
})

describe('once', () => {
  it('once: the first call runs, and further calls get its promise', async () => {
    const runs: string[] = []
    const close = once(async (reason: string) => {
      runs.push(reason)
    })
    expect([close.isCalled, close.promise]).toEqual([false, null])
    const first = close('first')
    expect(close('second')).toBe(first)
    expect(close.promise).toBe(first)
    expect(close.isCalled).toBe(true)
    await first
    expect(runs).toEqual(['first'])
  })
})
