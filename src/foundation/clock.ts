/** The clock port. The only file that uses the system's clocks and timers. */

// The global of the same name is a getter, which every reading of the clock would call.
import { performance } from 'node:perf_hooks'

/** A source of time and timers. Tests replace it with `ManualClock` from `tutti/testing`. */
export interface Clock {
  /** Wall-clock seconds since the epoch. Never runs backwards within a process. */
  now(): number
  /** Monotonic milliseconds; only differences mean something. */
  monotonicMs(): number
  /** Calls back once after `ms`; the returned function cancels. */
  after(ms: number, callback: () => void, options?: TimerOptions): () => void
  /** Calls back in the next turn of the event loop. */
  nextTurn(callback: () => void): void
}

export interface TimerOptions {
  /** Housekeeping: does not keep the process alive. Default `false`. */
  readonly background?: boolean
}

/** Node fires longer timers immediately, so longer waits are split. */
const longestTimerMs = 2 ** 31 - 1

/**
 * The system's clock. Wall time is anchored to the monotonic clock: it follows steps forward (NTP,
 * a resumed laptop) and ignores steps back, so that no event is dated before its cause.
 */
class SystemClock implements Clock {
  #anchorMs = Date.now() - performance.now()

  now(): number {
    const monotonic = performance.now()
    const system = Date.now()
    // Date.now() is truncated to the millisecond: only a larger lead is a step.
    if (system - (this.#anchorMs + monotonic) > 1) this.#anchorMs = system - monotonic
    return (this.#anchorMs + monotonic) / 1000
  }

  monotonicMs(): number {
    return performance.now()
  }

  after(ms: number, callback: () => void, options: TimerOptions = {}): () => void {
    let timer: NodeJS.Timeout
    const arm = (left: number): void => {
      const step = Math.min(left, longestTimerMs)
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

/** Resolves after `ms`, or rejects with the signal's reason. */
export function sleep(
  clock: Clock,
  ms: number,
  options: TimerOptions & { readonly signal?: AbortSignal } = {},
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
