/**
 * Maps uids to numbers in about 12 bytes per uid, without storing the text of the uid. Entries are
 * replaced, but never removed.
 */

const partitionBits = 6
const minSlots = 16
const maxLoad = 0.85
const growth = 1.5
const freeValue = 0xffffffff
const two32 = 2 ** 32

/** An open hash table with linear probing, in which slots are in the order of the hashes. */
class Partition {
  hashes = new Uint32Array(minSlots)
  values = new Uint32Array(minSlots).fill(freeValue)
  size = 0

  /**
   * Returns the slot with this hash and a value for which `isWanted` holds. If there is none,
   * returns the free slot in which to put a new value.
   */
  find(hash: number, isWanted: (value: number) => boolean): number {
    const { length } = this.values
    let slot = Math.floor((((hash << partitionBits) >>> 0) / two32) * length)
    for (;;) {
      const value = this.values[slot] as number
      if (value === freeValue || (this.hashes[slot] === hash && isWanted(value))) return slot
      slot = slot + 1 === length ? 0 : slot + 1
    }
  }

  add(slot: number, hash: number, value: number): void {
    this.hashes[slot] = hash
    this.values[slot] = value
    this.size++
    if (this.size > this.values.length * maxLoad) this.#grow()
  }

  #grow(): void {
    const { hashes, values } = this
    const length = Math.ceil(values.length * growth)
    this.hashes = new Uint32Array(length)
    this.values = new Uint32Array(length).fill(freeValue)
    values.forEach((value, at) => {
      if (value === freeValue) return
      const hash = hashes[at] as number
      const slot = this.find(hash, () => false)
      this.hashes[slot] = hash
      this.values[slot] = value
    })
  }
}

export class UidIndex {
  readonly #partitions = Array.from({ length: 1 << partitionBits }, () => new Partition())
  readonly #hasUid: (value: number, uid: string) => boolean

  /**
   * `hasUid` returns whether the value was set for this uid. It is called only for values whose uid
   * has the same hash.
   */
  constructor(hasUid: (value: number, uid: string) => boolean) {
    this.#hasUid = hasUid
  }

  /** Returns -1 for an unknown uid. */
  get(uid: string): number {
    const hash = hashOf(uid)
    const partition = this.#partitionOf(hash)
    const value = partition.values[this.#findSlot(partition, hash, uid)] as number
    return value === freeValue ? -1 : value
  }

  set(uid: string, value: number): void {
    const hash = hashOf(uid)
    const partition = this.#partitionOf(hash)
    const slot = this.#findSlot(partition, hash, uid)
    if (partition.values[slot] === freeValue) partition.add(slot, hash, value)
    else partition.values[slot] = value
  }

  #partitionOf(hash: number): Partition {
    return this.#partitions[hash >>> (32 - partitionBits)] as Partition
  }

  #findSlot(partition: Partition, hash: number, uid: string): number {
    return partition.find(hash, (value) => this.#hasUid(value, uid))
  }
}

/** Mixes each character into the hash, as MurmurHash does for 32 bits. */
function hashOf(text: string): number {
  let hash = text.length
  for (let at = 0; at < text.length; at++) {
    hash = Math.imul(hash ^ text.charCodeAt(at), 0x5bd1e995)
    hash ^= hash >>> 15
  }
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b)
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35)
  return (hash ^ (hash >>> 16)) >>> 0
}
