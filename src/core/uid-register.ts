/** The uids of all tasks of a session, including ended ones, so that none is used twice. */

import { generatedNumber } from '../foundation/ids.ts'

/** Numbers per block: a million consecutive generated uids take 125 kB as bits. */
const blockSize = 4096

export class UidRegister {
  /** Uids that were not generated. */
  readonly #others = new Set<string>()
  /** Generated uids in blocks. A block is one number, or one bit per number if it has several. */
  readonly #blocks = new Map<number, number | Uint32Array>()

  get isEmpty(): boolean {
    return this.#others.size === 0 && this.#blocks.size === 0
  }

  /** `false` if the uid is taken. */
  claim(uid: string): boolean {
    const number = generatedNumber(uid)
    if (number === null) {
      const { size } = this.#others
      return this.#others.add(uid).size > size
    }
    const index = Math.floor(number / blockSize)
    const offset = number % blockSize
    const block = this.#blocks.get(index)
    if (block === undefined) {
      this.#blocks.set(index, offset)
      return true
    }
    if (block === offset) return false
    if (typeof block !== 'number') return setBit(block, offset)
    const bits = new Uint32Array(blockSize / 32)
    this.#blocks.set(index, bits)
    return setBit(bits, block) && setBit(bits, offset)
  }

  /** Frees the uid of a task that was not submitted after all. */
  release(uid: string): void {
    const number = generatedNumber(uid)
    if (number === null) {
      this.#others.delete(uid)
      return
    }
    const index = Math.floor(number / blockSize)
    const offset = number % blockSize
    const block = this.#blocks.get(index)
    if (block === offset) this.#blocks.delete(index)
    else if (typeof block === 'object') clearBit(block, offset)
  }
}

/** `false` if it was already set. */
function setBit(bits: Uint32Array, at: number): boolean {
  const word = bits[at >>> 5] ?? 0
  const bit = 1 << (at & 31)
  bits[at >>> 5] = word | bit
  return (word & bit) === 0
}

function clearBit(bits: Uint32Array, at: number): void {
  bits[at >>> 5] = (bits[at >>> 5] ?? 0) & ~(1 << (at & 31))
}
