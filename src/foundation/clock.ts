/** The clock port. The only file that uses the system's clocks and timers. */

// Imported, because the global of the same name is a getter, which each reading would call.
import { performance } from 'node:perf_hooks'

/** A source of time and timers. Tests replace it with `ManualClock` from `tutti/testing`. */
export interface Clock {
  /** Wall-clock seconds since the epoch. Runs backwards only if the wall clock is set back. */
  now(): number
  /** Monotonic milliseconds; only differences mean something. */
  monotonicMs(): number
  /** Calls back once after `ms`; the returned function cancels. */
  after(ms: number, callback: () => void, options?: TimerOptions): () => void
  /** Calls back in the next turn of the event loop. */
  nextTurn(callback: () => void): void
}

/** The methods of a clock, for checks of options. */
export const clockMethods = ['now', 'monotonicMs', 'after', 'nextTurn'] as const

/** Options of a timer. */
export interface TimerOptions {
  /** Housekeeping: does not keep the process alive. Default `false`. */
  readonly background?: boolean
}

/** Node fires longer timers immediately, so longer waits are split. */
const maxTimerMs = 2 ** 31 - 1

/** When the wall clock goes back by less than this, the time stands still instead. */
const smallestStepMs = 2

/**
 * The system's clock. Wall time is the monotonic clock plus an offset, so that its resolution is
 * finer than the millisecond of `Date.now()`. Each reading of the system's clocks limits what the
 * offset can be, and the offset is changed only as far as these limits require. So a process that
 * was preempted or stopped between two readings, which widens the limits, changes nothing; steps of
 * the wall clock (NTP, a resumed laptop, a user) are followed in both directions.
 */
class SystemClock implements Clock {
  #offsetMs = Date.now() - performance.now()
  #lastMs = 0

  now(): number {
    const before = performance.now()
    const wall = Date.now()
    // The wall clock was read at `before` or later, and is truncated to the millisecond.
    const highest = wall + 1 - before
    let offset = this.#offsetMs
    if (offset < highest - 1 || offset > highest) {
      const lowest = wall - performance.now()
      offset = Math.min(Math.max(offset, lowest), highest)
      this.#offsetMs = offset
    }
    const nowMs = offset + before
    const backMs = this.#lastMs - nowMs
    if (backMs <= 0 || backMs >= smallestStepMs) this.#lastMs = nowMs
    return this.#lastMs / 1000
  }

  monotonicMs(): number {
    return performance.now()
  }

  after(ms: number, callback: () => void, options: TimerOptions = {}): () => void {
    let timer: NodeJS.Timeout
    const arm = (left: number): void => {
      const step = Math.min(left, maxTimerMs)
      timer = setTimeout(() => (left > step ? arm(left - step) : callback()), step)
      if (options.background === true) timer.unref()
    }
    arm(ms)
    return () => clearTimeout(timer)
  }

  nextTurn(callback: () => void): void {
    setImmediate(callback)
  }
}

export const systemClock: Clock = new SystemClock()

/** A clock whose callbacks never throw: `onError` gets their errors. */
export function catchErrors(clock: Clock, onError: (error: unknown) => void): Clock {
  const safe = (callback: () => void) => (): void => {
    try {
      callback()
    } catch (error) {
      onError(error)
    }
  }
  return {
    now: () => clock.now(),
    monotonicMs: () => clock.monotonicMs(),
    after: (ms, callback, options) => clock.after(ms, safe(callback), options),
    nextTurn: (callback) => clock.nextTurn(safe(callback)),
  }
}

/** Resolves after `ms`, or rejects with the signal's reason. */
export function sleep(
  clock: Clock,
  ms: number,
  options: TimerOptions & { readonly signal?: AbortSignal | undefined } = {},
): Promise<void> {
  const { signal } = options
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason)
    const abort = (): void => {
      cancel()
      reject(signal?.reason)
    }
    const cancel = clock.after(
      ms,
      () => {
        signal?.removeEventListener('abort', abort)
        resolve()
      },
      options,
    )
    signal?.addEventListener('abort', abort, { once: true })
  })
}
