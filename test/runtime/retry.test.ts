import { describe, expect, it } from 'vitest'
import { poll, retry } from '../../src/runtime/retry.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

describe('poll', () => {
  it('poll: pauses double up to their maximum until something is found', async () => {
    const clock = new ManualClock()
    const times: number[] = []
    const found = poll(
      { delayMs: 10, maxDelayMs: 30 },
      (attempt) => {
        times.push(clock.monotonicMs())
        return attempt === 5 ? 'found' : undefined
      },
      { clock },
    )
    await clock.advance(1000)
    expect(await found).toBe('found')
    expect(times.map((time) => time - (times[0] ?? 0))).toEqual([0, 10, 30, 60, 90])
  })

  it('poll: ends without a result after its attempts, its time, or an abort', async () => {
    const clock = new ManualClock()
    const counts = { attempts: 0, time: 0, abort: 0 }
    const look = (name: keyof typeof counts) => () => counts[name]++ > 100
    const stop = new AbortController()
    const ended = Promise.all([
      poll({ delayMs: 10, maxAttempts: 3 }, look('attempts'), { clock }),
      poll({ delayMs: 10, timeoutMs: 45 }, look('time'), { clock }),
      poll({ delayMs: 10 }, look('abort'), { clock, signal: stop.signal }),
    ])
    await clock.advance(75)
    stop.abort()
    await clock.advance(1000)
    expect(await ended).toEqual([undefined, undefined, undefined])
    expect(counts).toEqual({ attempts: 3, time: 6, abort: 8 })
  })
})

describe('retry', () => {
  const failing = (attempt: number): string => {
    if (attempt < 3) throw new Error(`attempt ${attempt}`)
    return 'done'
  }

  it('retry: pauses double up to their maximum', async () => {
    const clock = new ManualClock()
    const times: number[] = []
    const attempt = (count: number): void => {
      times.push(clock.monotonicMs())
      if (count < 5) throw new Error('not yet')
    }
    const done = retry({ delayMs: 10, maxDelayMs: 30 }, attempt, { clock })
    await clock.advance(1000)
    await done
    expect(times.map((time) => time - (times[0] ?? 0))).toEqual([0, 10, 30, 60, 90])
  })

  it('retry: resolves with the first success, and rejects with the last error', async () => {
    const clock = new ManualClock()
    const outcomes = Promise.allSettled([
      retry({ delayMs: 10 }, failing, { clock }),
      retry({ delayMs: 10, maxAttempts: 2 }, failing, { clock }),
      retry({ delayMs: 10 }, failing, { clock, mayRetry: () => false }),
    ])
    await clock.advance(0)
    await clock.advance(100)
    expect(await outcomes).toEqual([
      { status: 'fulfilled', value: 'done' },
      { status: 'rejected', reason: new Error('attempt 2') },
      { status: 'rejected', reason: new Error('attempt 1') },
    ])
  })

  it('retry: an abort rejects with the reason of the signal', async () => {
    const clock = new ManualClock()
    const stop = new AbortController()
    const outcome = Promise.allSettled([
      retry({ delayMs: 10 }, () => Promise.reject(new Error('no')), { clock, signal: stop.signal }),
    ])
    await clock.advance(5)
    stop.abort(new Error('closed'))
    expect(await outcome).toEqual([{ status: 'rejected', reason: new Error('closed') }])
  })
})
