/** The uids of all tasks of a session, including ended ones, so that none is used twice. */

import { parseUidNumber } from '../foundation/ids.ts'

/** The number of uids per block. As bits, a million consecutive generated uids take 125 kB. */
const blockSize = 4096

export class UidRegister {
  readonly #others = new Set<string>()
  /**
   * The numbers of generated uids, in blocks. A block with one number is stored as that number, a
   * larger block as one bit per number.
   */
  readonly #blocks = new Map<number, number | Uint32Array>()

  get isEmpty(): boolean {
    return this.#others.size === 0 && this.#blocks.size === 0
  }

  claim(uid: string): boolean {
    const number = parseUidNumber(uid)
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

  release(uid: string): void {
    const number = parseUidNumber(uid)
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

function setBit(bits: Uint32Array, at: number): boolean {
  const word = bits[at >>> 5] ?? 0
  const bit = 1 << (at & 31)
  bits[at >>> 5] = word | bit
  return (word & bit) === 0
}

function clearBit(bits: Uint32Array, at: number): void {
  bits[at >>> 5] = (bits[at >>> 5] ?? 0) & ~(1 << (at & 31))
}
