/** The timers and the clock of the page. No other file of the page uses them. */

/** Calls `action` once after `ms` milliseconds. Returns a function that cancels the call. */
export function later(ms: number, action: () => void): () => void {
  const timer = setTimeout(action, ms)
  return () => clearTimeout(timer)
}

/** Resolves after `ms` milliseconds, or as soon as `signal` is aborted. */
export const wait = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const cancel = later(ms, resolve)
    const abort = (): void => {
      cancel()
      resolve()
    }
    signal.addEventListener('abort', abort, { once: true })
  })

/** Milliseconds of a clock that never goes back. */
export const nowMs = (): number => performance.now()
