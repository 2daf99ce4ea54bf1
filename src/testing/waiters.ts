/** Lets tests wait for a condition, which is checked after every change. */

interface Waiter {
  readonly isMet: () => boolean
  readonly resolve: () => void
}

export class Waiters {
  #waiting: Waiter[] = []

  until(isMet: () => boolean): Promise<void> {
    if (isMet()) return Promise.resolve()
    return new Promise((resolve) => this.#waiting.push({ isMet, resolve }))
  }

  wake(): void {
    const met = this.#waiting.filter(({ isMet }) => isMet())
    if (met.length === 0) return
    this.#waiting = this.#waiting.filter((waiter) => !met.includes(waiter))
    for (const { resolve } of met) resolve()
  }
}
