import { describe, expect, it } from 'vitest'
import { MessageBatcher, type MessageBatcherOptions } from '../../src/runtime/channel.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** Turns of the loop and the departure of batches come when the test says so. */
function open(options: Partial<MessageBatcherOptions<string>> = {}) {
  const clock = new ManualClock()
  const turns: (() => void)[] = []
  clock.nextTurn = (callback) => void turns.push(callback)
  const batches: (readonly string[])[] = []
  const departures: (() => void)[] = []
  const batcher = new MessageBatcher<string>({
    clock,
    send(messages, onSent) {
      batches.push(messages)
      departures.push(onSent)
    },
    ...options,
  })
  const turn = (): void => turns.splice(0).forEach((callback) => callback())
  return { clock, turns, turn, batches, departures, batcher }
}

describe('MessageBatcher', () => {
  it('the messages of one turn leave in one batch in the next', () => {
    const { batcher, batches, turns, turn } = open()
    for (const text of ['a', 'b', 'c']) batcher.post(text)
    expect([batches, turns.length]).toEqual([[], 1])
    turn()
    expect([batches, batcher.size, turns.length]).toEqual([[['a', 'b', 'c']], 0, 0])
    turn()
    expect(batches).toHaveLength(1)
  })

  it('a held message waits for the next flush, whoever asks for it', () => {
    const { batcher, batches, turn } = open()
    batcher.flushSoon()
    batcher.enqueue('a')
    turn()
    expect(batches).toEqual([])
    batcher.post('b')
    turn()
    batcher.enqueue('c')
    batcher.flushSoon()
    turn()
    expect(batches).toEqual([['a', 'b'], ['c']])
  })

  it('a message that is sent at once leaves behind those before it', () => {
    const { batcher, batches, turn } = open()
    batcher.post('a')
    batcher.send('b')
    turn()
    expect(batches).toEqual([['a', 'b']])
  })

  it('a message can be withdrawn until it is sent', () => {
    const { batcher, batches, turn } = open()
    for (const text of ['a', 'b', 'a']) batcher.post(text)
    expect(batcher.withdraw((text) => text === 'a')).toBe(true)
    turn()
    expect(batcher.withdraw((text) => text === 'b')).toBe(false)
    expect(batches).toEqual([['b', 'a']])
  })

  it('a flush that is not urgent waits for the interval', async () => {
    const { batcher, batches, clock } = open({ minIntervalMs: 4 })
    const flush = (text: string, isUrgent: boolean): void => {
      batcher.enqueue(text)
      expect(batcher.flush(isUrgent)).toBeUndefined()
    }
    for (const text of ['a', 'b', 'c']) flush(text, false)
    expect(batches).toEqual([['a']])
    await clock.advance(4)
    flush('d', false)
    flush('e', true)
    expect(batcher.flush()).toBeUndefined()
    expect(batches).toEqual([['a'], ['b', 'c', 'd'], ['e']])
  })

  it('a sender waits while too many batches are on their way', async () => {
    const { batcher, departures } = open({ maxInFlight: 3 })
    const flush = (text: string): Promise<void> | undefined => {
      batcher.enqueue(text)
      return batcher.flush()
    }
    expect([flush('a'), flush('b')]).toEqual([undefined, undefined])
    const wait = flush('c')
    expect(wait).toBeInstanceOf(Promise)
    departures[0]?.()
    await wait
    expect(flush('d')).toBeInstanceOf(Promise)
  })

  it('a batch that cannot be sent is dropped, and its sender gets the error', async () => {
    const error = new Error('cannot be cloned')
    const { batcher } = open({
      send() {
        throw error
      },
    })
    expect(() => batcher.send('a')).toThrow(error)
    await batcher.drain()
    expect(batcher.size).toBe(0)
  })

  it('drain sends what is held and resolves when everything has left', async () => {
    const { batcher, batches, departures } = open()
    batcher.send('a')
    batcher.enqueue('b')
    const order: string[] = []
    const drained = batcher.drain().then(() => order.push('drained'))
    expect(batches).toEqual([['a'], ['b']])
    departures[0]?.()
    await Promise.resolve()
    order.push('half')
    departures[1]?.()
    await drained
    expect(order).toEqual(['half', 'drained'])
    await open().batcher.drain()
  })
})
