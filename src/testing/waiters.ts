/** Lets tests wait until something holds, judged whenever something has happened. */

interface Waiter {
  readonly isMet: () => boolean
  readonly resolve: () => void
}

export class Waiters {
  #waiting: Waiter[] = []

  /** Resolves as soon as the condition holds, now or after a `wake`. */
  until(isMet: () => boolean): Promise<void> {
    if (isMet()) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ isMet, resolve }))
  }

  /** Something has happened. */
  wake(): void {
    const met = this.#waiting.filter(({ isMet }) => isMet())
    if (met.length === 0) return
    this.#waiting = this.#waiting.filter((waiter) => !met.includes(waiter))
    for (const { resolve } of met) resolve()
  }
}
