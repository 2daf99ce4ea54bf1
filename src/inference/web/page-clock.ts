/** The clock and the timer of the page. No other file of the page uses those of the browser. */

/** Milliseconds of a clock that never goes back. */
export const nowMs = (): number => performance.now()

export const wait = (ms: number): Promise<void> =>
  new Promise((resolve) => {
    setTimeout(resolve, ms)
  })
