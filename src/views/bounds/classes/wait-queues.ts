/** The tasks that wait for slots, in one queue per request. Uses five bytes per wait. */

import type { Intervals } from '../slots.ts'

/** For each request, finds the task that has waited longest. */
export class WaitQueues {
  readonly #waits: Intervals
  /** For each request, the first wait in its queue; -1 if there is none. */
  readonly #first: Int32Array
  readonly #last: Int32Array
  /** For each wait, the next wait of the same request. */
  readonly #next: Int32Array
  readonly #hasEnded: Uint8Array

  constructor(waits: Intervals, requests: number) {
    this.#waits = waits
    this.#first = new Int32Array(requests).fill(-1)
    this.#last = new Int32Array(requests).fill(-1)
    this.#next = new Int32Array(waits.from.length).fill(-1)
    this.#hasEnded = new Uint8Array(waits.from.length)
  }

  /** Adds a wait and returns its request. Waits must be added in order of time. */
  add(at: number): number {
    const request = this.#waits.request[at] ?? 0
    const last = this.#last[request] ?? -1
    if (last === -1 || this.#first[request] === -1) this.#first[request] = at
    else this.#next[last] = at
    this.#last[request] = at
    return request
  }

  remove(at: number): number {
    const request = this.#waits.request[at] ?? 0
    this.#hasEnded[at] = 1
    let first = this.#first[request] ?? -1
    while (first !== -1 && this.#hasEnded[first] === 1) first = this.#next[first] ?? -1
    this.#first[request] = first
    return request
  }

  isBefore(request: number, other: number): boolean {
    const [a, b] = [this.#first[request] ?? -1, this.#first[other] ?? -1]
    if (a === -1 || b === -1) return false
    const [from, otherFrom] = [this.#waits.from[a] ?? 0, this.#waits.from[b] ?? 0]
    return from < otherFrom || (from === otherFrom && a < b)
  }
}
