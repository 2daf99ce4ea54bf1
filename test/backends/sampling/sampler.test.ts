import { describe, expect, it } from 'vitest'
import { withReadTimeout } from '../../../src/backends/sampling/sampler.ts'
import { TimeoutError } from '../../../src/foundation/errors.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'

describe('withDeadline', () => {
  it('withDeadline passes an outcome on and leaves no timer', async () => {
    const clock = new ManualClock()
    expect(await withReadTimeout(clock, Promise.resolve(5))).toBe(5)
    const failure = new Error('no')
    await expect(withReadTimeout(clock, Promise.reject(failure))).rejects.toBe(failure)
    expect(clock.pendingTimers).toBe(0)
  })

  it('withDeadline gives up after 2 s, and no sooner', async () => {
    const clock = new ManualClock()
    let outcome: unknown
    void withReadTimeout(clock, new Promise(() => {})).catch((error: unknown) => (outcome = error))
    await clock.advance(1999)
    expect(outcome).toBeUndefined()
    await clock.advance(1)
    expect(outcome).toBeInstanceOf(TimeoutError)
  })

  it('withDeadline accepts an answer that came in the turn in which the time ran out', async () => {
    const clock = new ManualClock()
    const answer = new Promise((resolve) => clock.nextTurn(() => resolve('in time')))
    const bounded = withReadTimeout(clock, answer)
    await clock.advance(2000)
    expect(await bounded).toBe('in time')
  })
})
