import { describe, expect, it } from 'vitest'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { backOffDelay, Restarts, supervise } from '../../src/runtime/retry.ts'

const open = () => new Restarts({ firstDelayMs: 100, maxDelayMs: 500, giveUpAfter: 3 })

describe('Restarts', () => {
  it('the delay doubles with each failure in a row, up to its limit', () => {
    const backOff = open()
    expect(backOff.canStart(() => 0)).toBe(true)
    expect([0, 0, 0, 0, 0].map((now) => backOff.fail(now))).toEqual([100, 200, 400, 500, 500])
    expect([450, 500].map((now) => backOff.canStart(() => now))).toEqual([false, true])
  })

  it('Restarts gives up after so many failures in a row, until another attempt is due', () => {
    const backOff = open()
    backOff.fail(0)
    backOff.fail(1000, new Error('second'))
    expect(backOff.hasGivenUp(1000)).toBe(false)
    backOff.fail(2000, new Error('third'))
    expect([backOff.hasGivenUp(2000), backOff.hasGivenUp(2400)]).toEqual([true, false])
    expect([backOff.failures, backOff.lastError]).toEqual([3, new Error('third')])
  })

  it('a success makes the next failure the first', () => {
    const backOff = open()
    for (const now of [0, 0, 0]) backOff.fail(now, new Error('no'))
    backOff.succeed()
    expect([backOff.failures, backOff.lastError]).toEqual([0, undefined])
    expect([backOff.hasGivenUp(0), backOff.fail(10)]).toEqual([false, 100])
  })

  it('without a limit it never gives up', () => {
    const backOff = new Restarts({ firstDelayMs: 1, maxDelayMs: 10 })
    for (let failure = 0; failure < 2000; failure++) backOff.fail(0)
    expect([backOff.hasGivenUp(0), backOff.nextStartMs]).toEqual([false, 10])
  })
})

it('backOffDelay: no failure has no delay, and none grows beyond the longest', () => {
  const delays = [0, 1, 2, 3, 4].map((failures) => backOffDelay(failures, { first: 3, max: 20 }))
  expect(delays).toEqual([0, 3, 6, 12, 20])
  expect(backOffDelay(3, { first: 2, max: 100, factor: 3 })).toBe(18)
  expect(backOffDelay(5000, { first: 0, max: 10 })).toBe(0)
})

describe('Restarts of several at once', () => {
  it('starts that fail together share one delay, and delays grow as those of single ones', () => {
    const [starts, backOff] = [open(), open()]
    for (let round = 0, now = 0; round < 5; round++) {
      const begun = [starts.begin(now), starts.begin(now)]
      expect(begun.map((one) => starts.fail(now, 'no', one) > 0)).toEqual([true, false])
      expect(starts.nextStartMs).toBe(now + backOff.fail(now))
      expect(starts.canStart(() => starts.nextStartMs - 1)).toBe(false)
      now = starts.nextStartMs
      expect(starts.canStart(() => now)).toBe(true)
    }
    expect(starts.failures).toBe(10)
  })

  it('a start that succeeds ends the delay, and the next failure has the first one', () => {
    const starts = open()
    for (const now of [0, 1000, 2000]) starts.fail(now, 'no', starts.begin(now))
    expect([starts.hasGivenUp(2001), starts.succeed(), starts.succeed()]).toEqual([
      true,
      true,
      false,
    ])
    expect([starts.hasGivenUp(2001), starts.canStart(() => 2001)]).toEqual([false, true])
    starts.fail(3000, 'no', starts.begin(3000))
    expect(starts.nextStartMs).toBe(3100)
  })
})

describe('supervise', () => {
  it('supervise: a steady run makes the next failure the first', async () => {
    const clock = new ManualClock()
    const failures: number[] = []
    const policy = { firstDelayMs: 10, maxDelayMs: 40, giveUpAfter: 3, steadyMs: 0 }
    const { signal } = new AbortController()
    const given = supervise(
      policy,
      async (run) => {
        if (failures.push(run.failures) === 3) run.onReady()
        return `end ${failures.length}`
      },
      { clock, signal },
    )
    await clock.advance(0)
    await clock.advance(1000)
    expect(await given).toBe('end 5')
    expect(failures).toEqual([0, 1, 2, 1, 2])
  })

  it('supervise: an abort ends it during a delay', async () => {
    const clock = new ManualClock()
    const stop = new AbortController()
    let runs = 0
    const policy = { firstDelayMs: 10, maxDelayMs: 10, steadyMs: 0 }
    const run = async (): Promise<string> => `end ${++runs}`
    const over = supervise(policy, run, { clock, signal: stop.signal })
    await clock.advance(0)
    await clock.advance(15)
    stop.abort()
    expect([await over, runs]).toEqual([null, 2])
  })
})
