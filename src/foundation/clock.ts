/** The clock interface. Only this file uses the system's clocks and timers. */

// Imported, because the global `performance` is a getter, which would run on every access.
import { performance } from 'node:perf_hooks'

/** A source of time and timers. Tests replace it with `ManualClock` from `tutti/testing`. */
export interface Clock {
  /** Wall-clock seconds since the epoch. Decreases only if the wall clock is set back. */
  now(): number
  /** Monotonic milliseconds. Only differences are meaningful. */
  monotonicMs(): number
  /** Calls back once after `ms`. The returned function cancels the timer. */
  after(ms: number, callback: () => void, options?: TimerOptions): () => void
  /** Calls back in the next turn of the event loop. */
  nextTurn(callback: () => void): void
}

/** One time on both clocks: the wall clock is for timestamps, the monotonic clock for durations. */
export const readMoment = (
  clock: Pick<Clock, 'now' | 'monotonicMs'>,
): { readonly wallSeconds: number; readonly monotonicMs: number } => ({
  wallSeconds: clock.now(),
  monotonicMs: clock.monotonicMs(),
})

/** The methods of a clock, to validate a clock that is passed as an option. */
export const clockMethods = ['now', 'monotonicMs', 'after', 'nextTurn'] as const

/** How a timer behaves while it is pending. */
export interface TimerOptions {
  /** Whether the process may exit while the timer is pending. Default `false`. */
  readonly background?: boolean
}

/** The longest delay of a Node timer. Node fires longer timers immediately, so they are split. */
const maxTimerMs = 2 ** 31 - 1

/** How often `now()` reads both clocks. That takes twice as long as the monotonic clock alone. */
const wallCheckMs = 1

/** If the wall clock steps back by less than this, `now()` returns the last time again. */
const minStepBackMs = 2

/**
 * The system's clock. Wall-clock time is the monotonic clock plus an offset, which gives a finer
 * resolution than the milliseconds of `Date.now()`. Each reading of both clocks gives a lower and
 * an upper limit of the offset. The offset changes only if it is outside these limits. A pause of
 * the process between the two readings only widens the limits. Steps of the wall clock (NTP, a
 * resumed laptop, a user) are followed in both directions, within a millisecond.
 */
class SystemClock implements Clock {
  #offsetMs = Date.now() - performance.now()
  #lastMs = 0
  #nextCheckMs = 0

  now(): number {
    const monotonic = performance.now()
    if (monotonic >= this.#nextCheckMs) this.#checkOffset(monotonic)
    const nowMs = this.#offsetMs + monotonic
    const stepBackMs = this.#lastMs - nowMs
    if (stepBackMs <= 0 || stepBackMs >= minStepBackMs) this.#lastMs = nowMs
    return this.#lastMs / 1000
  }

  /** Compares both clocks. `before` is a reading of the monotonic clock. */
  #checkOffset(before: number): void {
    this.#nextCheckMs = before + wallCheckMs
    const wall = Date.now()
    // The wall clock was read at `before` or later, and is truncated to the millisecond.
    const maxOffset = wall + 1 - before
    const offset = this.#offsetMs
    if (offset >= maxOffset - 1 && offset <= maxOffset) return
    const minOffset = wall - performance.now()
    this.#offsetMs = Math.min(Math.max(offset, minOffset), maxOffset)
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

/** Wraps a clock, so that errors thrown by callbacks are passed to `onError`. */
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

/** Resolves after `ms`, or rejects with the signal's reason if it is aborted before that. */
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
