import { afterEach, describe, expect, it, vi } from 'vitest'
import { sleep, systemClock } from '../../src/foundation/clock.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

describe('the system clock', () => {
  it('gives seconds that agree with the system', () => {
    expect(Math.abs(systemClock.now() - Date.now() / 1000)).toBeLessThan(1)
  })

  it('row 28: never runs backwards, and follows a step forward', () => {
    const real = Date.now
    let offset = 0
    vi.spyOn(Date, 'now').mockImplementation(() => real.call(Date) + offset)
    let last = systemClock.now()
    const before = last
    for (const step of [0, -3_600_000, 0, -1, 5000, -5000, 0, 7_200_000, -7_200_000]) {
      offset += step
      for (let count = 0; count < 50; count++) {
        const now = systemClock.now()
        expect(now).toBeGreaterThanOrEqual(last)
        last = now
      }
    }
    // The forward steps were followed: from the lowest point, two hours up.
    expect(last - before).toBeGreaterThan(3590)
  })

  it('measures with a clock that does not step', () => {
    vi.spyOn(Date, 'now').mockReturnValue(0)
    const before = systemClock.monotonicMs()
    expect(systemClock.monotonicMs()).toBeGreaterThanOrEqual(before)
  })

  it('does not fire a timer of more than 2^31 ms at once, but in its time', () => {
    vi.useFakeTimers()
    const month = 31 * 86_400_000
    let fired = 0
    systemClock.after(month, () => fired++)
    vi.advanceTimersByTime(2 ** 31)
    expect(fired).toBe(0)
    vi.advanceTimersByTime(month - 2 ** 31 - 1)
    expect(fired).toBe(0)
    vi.advanceTimersByTime(1)
    expect(fired).toBe(1)
    expect(vi.getTimerCount()).toBe(0)
  })

  it('cancels a long timer in any of its parts', () => {
    vi.useFakeTimers()
    let fired = 0
    const cancel = systemClock.after(2 ** 33, () => fired++)
    vi.advanceTimersByTime(2 ** 32)
    cancel()
    vi.advanceTimersByTime(2 ** 33)
    expect([fired, vi.getTimerCount()]).toEqual([0, 0])
  })

  it('keeps the process alive unless the timer is for housekeeping', () => {
    const made: NodeJS.Timeout[] = []
    const real = globalThis.setTimeout
    vi.spyOn(globalThis, 'setTimeout').mockImplementation(((callback: () => void, ms: number) => {
      const timer = real(callback, ms)
      made.push(timer)
      return timer
    }) as typeof setTimeout)
    const cancels = [
      systemClock.after(1000, () => {}),
      systemClock.after(1000, () => {}, { background: true }),
    ]
    expect(made.map((timer) => timer.hasRef())).toEqual([true, false])
    for (const cancel of cancels) cancel()
  })

  it('calls back in the next turn, not in this one', async () => {
    const order: string[] = []
    const called = new Promise<void>((resolve) =>
      systemClock.nextTurn(() => {
        order.push('turn')
        resolve()
      }),
    )
    await Promise.resolve()
    order.push('promise')
    await called
    expect(order).toEqual(['promise', 'turn'])
  })
})

describe('sleep', () => {
  it('resolves in its time and leaves no listener', async () => {
    const clock = new ManualClock()
    const { signal } = new AbortController()
    const removed = vi.spyOn(signal, 'removeEventListener')
    let isAwake = false
    const sleeping = sleep(clock, 100, { signal }).then(() => (isAwake = true))
    await clock.advance(99)
    expect(isAwake).toBe(false)
    await clock.advance(1)
    await sleeping
    expect(removed).toHaveBeenCalledOnce()
  })

  it('rejects with the reason when it is or was aborted, and leaves no timer', async () => {
    const clock = new ManualClock()
    const controller = new AbortController()
    const reason = new Error('enough')
    const sleeping = sleep(clock, 100, { signal: controller.signal })
    controller.abort(reason)
    await expect(sleeping).rejects.toBe(reason)
    await expect(sleep(clock, 100, { signal: controller.signal })).rejects.toBe(reason)
    expect(clock.pendingTimers).toBe(0)
  })
})

describe('the manual clock', () => {
  it('fires timers in order of their time, those of timers included', async () => {
    const clock = new ManualClock(0)
    const order: string[] = []
    clock.after(20, () => order.push(`b ${clock.monotonicMs()}`))
    clock.after(10, () => {
      order.push(`a ${clock.monotonicMs()}`)
      clock.after(5, () => order.push(`c ${clock.monotonicMs()}`))
    })
    const cancel = clock.after(12, () => order.push('never'))
    cancel()
    await clock.advance(25)
    expect(order).toEqual(['a 10', 'c 15', 'b 20'])
    expect([clock.now(), clock.monotonicMs(), clock.pendingTimers]).toEqual([0.025, 25, 0])
    clock.stepWall(-100)
    expect([clock.now(), clock.monotonicMs()]).toEqual([-99.975, 25])
  })
})
