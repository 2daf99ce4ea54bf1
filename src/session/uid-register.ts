/** The uids that the tasks of a session have, or had: none is used twice. */

import type { Task } from '../tasks/task.ts'

/** A million generated uids take 125 kB. */
const blockSize = 4096

export class UidRegister {
  readonly #others = new Set<string>()
  /** Blocks of bits, one for each number of the generated uids. */
  readonly #blocks = new Map<number, Uint32Array>()

  /** `false` when it is taken. */
  claim({ uid, uidNumber }: Task): boolean {
    if (uidNumber === null) {
      const { size } = this.#others
      return this.#others.add(uid).size > size
    }
    const block = this.#blockOf(uidNumber)
    const [at, bit] = positionOf(uidNumber)
    const bits = block[at] ?? 0
    block[at] = bits | bit
    return (bits & bit) === 0
  }

  /** For a task that was not submitted after all. */
  release({ uid, uidNumber }: Task): void {
    if (uidNumber === null) {
      this.#others.delete(uid)
      return
    }
    const block = this.#blockOf(uidNumber)
    const [at, bit] = positionOf(uidNumber)
    block[at] = (block[at] ?? 0) & ~bit
  }

  #blockOf(number: number): Uint32Array {
    const index = Math.floor(number / blockSize)
    let block = this.#blocks.get(index)
    if (block === undefined) {
      block = new Uint32Array(blockSize / 32)
      this.#blocks.set(index, block)
    }
    return block
  }
}

/** The word in its block, and the bit in that. */
function positionOf(number: number): readonly [at: number, bit: number] {
  const inBlock = number % blockSize
  return [inBlock >>> 5, 1 << (inBlock & 31)]
}
