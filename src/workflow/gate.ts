/** Lets so many pieces of work run at a time, in the order in which they came. No priorities. */

import { Fifo } from '../runtime/fifo.ts'

/** Those outside are as many as there are callers, who hold what they brought anyway. */
export class Gate {
  readonly #outside = new Fifo<() => void>()
  #free: number

  constructor(mostAtOnce: number) {
    this.#free = mostAtOnce
  }

  /** Gives what the work gives, once there was a place for it. */
  async pass<T>(work: () => Promise<T>): Promise<T> {
    if (this.#free > 0) this.#free--
    else await new Promise<void>((enter) => this.#outside.push(enter))
    try {
      return await work()
    } finally {
      const next = this.#outside.shift()
      if (next === undefined) this.#free++
      else next()
    }
  }
}
