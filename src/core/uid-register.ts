/** The uids that the tasks of a session have, or had: none is used twice. */

import type { Uid } from '../tasks/uid.ts'

/** A million generated uids, which follow each other, take 125 kB. */
const blockSize = 4096

export class UidRegister {
  readonly #others = new Set<string>()
  /** The numbers of generated uids, by blocks: the only one of its block, or a bit for each. */
  readonly #blocks = new Map<number, number | Uint32Array>()

  /** `false` when it is taken. */
  claim({ text, number }: Uid): boolean {
    if (number === null) {
      const { size } = this.#others
      return this.#others.add(text).size > size
    }
    const { index, offset } = placeOf(number)
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

  /** For a task that was not submitted after all. */
  release({ text, number }: Uid): void {
    if (number === null) {
      this.#others.delete(text)
      return
    }
    const { index, offset } = placeOf(number)
    const block = this.#blocks.get(index)
    if (block === offset) this.#blocks.delete(index)
    else if (typeof block === 'object') clearBit(block, offset)
  }
}

const placeOf = (number: number) => ({
  index: Math.floor(number / blockSize),
  offset: number % blockSize,
})

/** `false` when it was set. */
function setBit(bits: Uint32Array, at: number): boolean {
  const word = bits[at >>> 5] ?? 0
  const bit = 1 << (at & 31)
  bits[at >>> 5] = word | bit
  return (word & bit) === 0
}

function clearBit(bits: Uint32Array, at: number): void {
  bits[at >>> 5] = (bits[at >>> 5] ?? 0) & ~(1 << (at & 31))
}
