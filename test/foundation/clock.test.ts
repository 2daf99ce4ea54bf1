import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { performance } from 'node:perf_hooks'
import { afterEach, describe, expect, it, vi } from 'vitest'
import { sleep, systemClock } from '../../src/foundation/clock.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

afterEach(() => {
  vi.restoreAllMocks()
  vi.useRealTimers()
})

/**
 * Both of the system's clocks, at the test's command. Every reading takes 0.0001 ms, and the one
 * after which the process is preempted as long as that lasts.
 */
function fakeReadings() {
  let monotonicMs = performance.now()
  let preemption = { readings: Infinity, ms: 0 }
  const time = {
    wallMs: Math.floor(Date.now()) + 0.25,
    pass(ms: number): void {
      monotonicMs += ms
      time.wallMs += ms
    },
    preemptAfter(readings: number, ms: number): void {
      preemption = { readings, ms }
    },
    /** How far a time in seconds is from the wall clock. */
    leadMs: (seconds: number) => Math.abs(seconds * 1000 - time.wallMs),
  }
  const read = (value: () => number) => (): number => {
    const now = value()
    time.pass(--preemption.readings === 0 ? preemption.ms : 0.0001)
    return now
  }
  vi.spyOn(performance, 'now').mockImplementation(read(() => monotonicMs))
  vi.spyOn(Date, 'now').mockImplementation(read(() => Math.floor(time.wallMs)))
  return time
}

describe('the system clock', () => {
  it('the system clock gives seconds that agree with the system', () => {
    expect(Math.abs(systemClock.now() - Date.now() / 1000)).toBeLessThan(1)
  })

  it('row 28: the system clock follows steps of the wall clock, backwards only with them', () => {
    const time = fakeReadings()
    for (const stepMs of [0, -3_600_000, 0, 5000, -5000, 7_200_000, -7_200_000, -1.5, 1.5]) {
      const before = systemClock.now()
      time.wallMs += stepMs
      time.pass(1)
      // A step of less than 2 ms is bridged: the time stands still.
      const first = systemClock.now()
      if (stepMs > -2) expect(first).toBeGreaterThanOrEqual(before)
      let last = first
      for (let count = 0; count < 50; count++) {
        time.pass(0.1)
        const now = systemClock.now()
        expect(now).toBeGreaterThanOrEqual(last)
        last = now
      }
      expect(time.leadMs(last)).toBeLessThan(2)
    }
  })

  it('row 117: a process that is preempted between two readings stays at the wall clock', () => {
    const time = fakeReadings()
    for (let count = 0; count < 1000; count++) {
      // After any reading but the first: before, between and after those of the two clocks.
      time.preemptAfter(1 + (count % 4), 300)
      let last = systemClock.now()
      time.pass(0.3)
      const now = systemClock.now()
      expect(now).toBeGreaterThanOrEqual(last)
      last = now
    }
    time.pass(10)
    expect(time.leadMs(systemClock.now())).toBeLessThan(2)
    for (const stepMs of [500, -500]) {
      time.preemptAfter(1, 300)
      time.wallMs += stepMs
      systemClock.now()
      time.pass(10)
      expect(time.leadMs(systemClock.now())).toBeLessThan(2)
    }
  })

  it('row 117: a process that is stopped again and again stays at the wall clock', async () => {
    const clockFile = new URL('../../src/foundation/clock.ts', import.meta.url)
    const script = `
      const { systemClock } = await import(${JSON.stringify(clockFile.href)})
      process.stdin.on('data', () => {
        let [ahead, behind] = [-Infinity, Infinity]
        for (let count = 0; count < 20; count++) {
          const [now, after] = [systemClock.now() * 1000, Date.now()]
          ahead = Math.max(ahead, now - after)
          behind = Math.min(behind, after - now)
        }
        process.stdout.write(JSON.stringify({ ahead, behind }))
        process.exit()
      })
      process.stdout.write('ready')
      // Without a pause, so that the process is stopped between two readings.
      const read = () => {
        for (let count = 0; count < 1000; count++) systemClock.now()
        setImmediate(read)
      }
      read()`
    const child = spawn(process.execPath, ['--input-type=module', '-e', script])
    let output = ''
    child.stdout.on('data', (data: Buffer) => (output += data.toString()))
    await once(child.stdout, 'data')
    for (let count = 0; count < 40; count++) {
      child.kill('SIGSTOP')
      await sleep(systemClock, 20)
      child.kill('SIGCONT')
      await sleep(systemClock, 3)
    }
    child.stdin.write('enough')
    await once(child, 'close')
    const { ahead, behind } = JSON.parse(output.slice('ready'.length)) as Record<string, number>
    expect(ahead).toBeLessThan(2)
    expect(behind).toBeLessThan(2)
  })

  it('the system clock measures durations with a clock that does not step', () => {
    vi.spyOn(Date, 'now').mockReturnValue(0)
    const before = systemClock.monotonicMs()
    expect(systemClock.monotonicMs()).toBeGreaterThanOrEqual(before)
  })

  it('the system clock fires a timer of more than 2^31 ms in its time, not immediately', () => {
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

  it('the system clock cancels a long timer in any of its parts', () => {
    vi.useFakeTimers()
    let fired = 0
    const cancel = systemClock.after(2 ** 33, () => fired++)
    vi.advanceTimersByTime(2 ** 32)
    cancel()
    vi.advanceTimersByTime(2 ** 33)
    expect([fired, vi.getTimerCount()]).toEqual([0, 0])
  })

  it('the system clock keeps the process alive unless the timer is for housekeeping', () => {
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

  it('the system clock calls back in the next turn, not in this one', async () => {
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
  it('sleep resolves in its time and leaves no listener', async () => {
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

  it('sleep rejects with the reason when it is or was aborted, and leaves no timer', async () => {
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
  it('the manual clock fires timers in order of their time, those of timers included', async () => {
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
