/** A manual clock that reports when a timer of a certain length was set. */

import { ManualClock } from '../../../src/testing/manual-clock.ts'

export class NoticedClock extends ManualClock {
  /** Timers that were set and not yet waited for, by their length. */
  readonly #unnoticed = new Map<number, number>()
  readonly #waiting: { readonly ms: number; readonly resolve: () => void }[] = []

  override after(ms: number, callback: () => void): () => void {
    const cancel = super.after(ms, callback)
    const at = this.#waiting.findIndex((one) => one.ms === ms)
    const [waiting] = at === -1 ? [] : this.#waiting.splice(at, 1)
    if (waiting === undefined) this.#unnoticed.set(ms, (this.#unnoticed.get(ms) ?? 0) + 1)
    else waiting.resolve()
    return cancel
  }

  /** Resolves when a timer of this length has been set; each call waits for another one. */
  timer(ms: number): Promise<void> {
    const unnoticed = this.#unnoticed.get(ms) ?? 0
    if (unnoticed === 0) return new Promise((resolve) => this.#waiting.push({ ms, resolve }))
    this.#unnoticed.set(ms, unnoticed - 1)
    return Promise.resolve()
  }
}
