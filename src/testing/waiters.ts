/** Conditions that a test waits for, checked whenever the tested object signals a change. */

interface Waiter {
  readonly isMet: () => boolean
  readonly resolve: () => void
}

export class Waiters {
  #waiting: Waiter[] = []

  /** Resolves as soon as the condition holds: now, or after a call of `wake`. */
  until(isMet: () => boolean): Promise<void> {
    if (isMet()) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ isMet, resolve }))
  }

  /** Checks all conditions again. */
  wake(): void {
    const met = this.#waiting.filter(({ isMet }) => isMet())
    if (met.length === 0) return
    this.#waiting = this.#waiting.filter((waiter) => !met.includes(waiter))
    for (const { resolve } of met) resolve()
  }
}
