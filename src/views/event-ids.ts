/** Finds events that a record holds twice, by their ids; uses 4 MB. */

const windowSize = 65_536
/** Twice the window, so that open addressing finds a free slot after few steps. */
const slotCount = 2 * windowSize

/**
 * Knows at least the last 65,536 ids and at most twice as many: two generations, of which the older
 * is dropped as a whole. Keeps a 64-bit hash of each id, because keeping the texts takes several
 * times as long. Two ids of a record of a million events collide in one of a hundred million
 * records.
 */
export class EventIds {
  #newer = createGeneration()
  #older = createGeneration()

  /** Returns the line of the latest event with this id, or 0; then stores `line`, from 1. */
  add(id: string, line: number): number {
    let low = 0x9747b28c
    let high = 0x3c6ef372
    for (let at = 0; at < id.length; at++) {
      const unit = id.charCodeAt(at)
      low = Math.imul(((low << 15) | (low >>> 17)) ^ unit, 0x9e3779b1)
      high = Math.imul(((high << 13) | (high >>> 19)) ^ unit, 0x85ebca77)
    }
    low ^= low >>> 16
    if (this.#newer.size === windowSize) this.#dropOlder()
    const slot = slotOf(this.#newer, low, high)
    const before = lineAt(this.#newer, slot)
    setSlot(this.#newer, slot, low, high, line)
    return before === 0 ? lineAt(this.#older, slotOf(this.#older, low, high)) : before
  }

  #dropOlder(): void {
    const dropped = this.#older
    this.#older = this.#newer
    this.#newer = dropped
    dropped.lines.fill(0)
    dropped.size = 0
  }
}

interface Generation {
  readonly lows: Int32Array
  readonly highs: Int32Array
  /** 0 means that the slot is free. */
  readonly lines: Float64Array
  size: number
}

const createGeneration = (): Generation => ({
  lows: new Int32Array(slotCount),
  highs: new Int32Array(slotCount),
  lines: new Float64Array(slotCount),
  size: 0,
})

const lineAt = ({ lines }: Generation, slot: number): number => lines[slot] ?? 0

/** The slot that holds this hash, or the free slot for it. */
function slotOf({ lows, highs, lines }: Generation, low: number, high: number): number {
  let slot = low & (slotCount - 1)
  while (lines[slot] !== 0 && (lows[slot] !== low || highs[slot] !== high)) {
    slot = (slot + 1) & (slotCount - 1)
  }
  return slot
}

function setSlot(to: Generation, slot: number, low: number, high: number, line: number): void {
  if (to.lines[slot] === 0) to.size++
  to.lows[slot] = low
  to.highs[slot] = high
  to.lines[slot] = line
}
