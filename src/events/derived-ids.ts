/**
 * Ids that two threads derive from a shared random key and a counter, so that an id never has to be
 * passed from one to the other.
 */

import { randomFillSync } from 'node:crypto'

/** The number of random words that ids are derived from. */
const keyWords = 6
const two32 = 2 ** 32
const eventIdDigits = 32
/**
 * The number of event ids that are made together, because making one text takes longer than making
 * its digits.
 */
const idsPerBlock = 16
const spanIdDigits = 16

export const newIdKey = (): Int32Array => randomFillSync(new Int32Array(keyWords))

/** A bijection of 32-bit numbers. One changed bit changes about half of the bits of the result. */
function mix(value: number): number {
  let bits = Math.imul(value ^ (value >>> 16), 0x85ebca6b)
  bits = Math.imul(bits ^ (bits >>> 13), 0xc2b2ae35)
  return bits ^ (bits >>> 16)
}

const digits = Buffer.from('0123456789abcdef', 'latin1')

/** Writes 8 hex digits. */
function writeWord(target: Uint8Array, at: number, word: number): void {
  for (let digit = 0, shift = 28; shift >= 0; digit++, shift -= 4) {
    target[at + digit] = digits[(word >>> shift) & 15] as number
  }
}

/**
 * Event ids and span ids by number. Different numbers give different ids, because the low and the
 * high half of the number each determine one whole word of the id, by a bijection.
 */
export class DerivedIds {
  readonly key: Int32Array
  readonly #scratch = Buffer.alloc(eventIdDigits * idsPerBlock)
  /**
   * `#blockText` has the ids of the `idsPerBlock` events from the number `#block * idsPerBlock` on.
   */
  #block = -1
  #blockText = ''

  constructor(key: Int32Array) {
    this.key = key
  }

  /** Writes 32 hex digits with the version and variant bits of a UUID4. */
  writeEventId(target: Uint8Array, at: number, number: number): void {
    const { key } = this
    const first = mix((number | 0) ^ (key[0] as number))
    const last = mix(((number / two32) | 0) ^ mix(first ^ (key[3] as number)))
    const second = mix(first ^ last ^ (key[1] as number))
    const third = mix(second ^ last ^ (key[2] as number))
    writeWord(target, at, first)
    writeWord(target, at + 8, (second & 0xffff0fff) | 0x4000)
    writeWord(target, at + 16, (third & 0x3fffffff) | 0x80000000)
    writeWord(target, at + 24, last)
  }

  /** Writes 16 hex digits. */
  writeSpanId(target: Uint8Array, at: number, number: number): void {
    const first = this.#firstSpanWord(number)
    writeWord(target, at, first)
    writeWord(target, at + 8, this.#lastSpanWord(number, first))
  }

  /** Returns an event id as text. Fast for consecutive numbers. */
  eventId(number: number): string {
    const block = Math.floor(number / idsPerBlock)
    const first = block * idsPerBlock
    if (block !== this.#block) {
      for (let at = 0; at < idsPerBlock; at++) {
        this.writeEventId(this.#scratch, at * eventIdDigits, first + at)
      }
      this.#blockText = this.#scratch.toString('latin1')
      this.#block = block
    }
    const from = (number - first) * eventIdDigits
    return this.#blockText.slice(from, from + eventIdDigits)
  }

  spanId(number: number): string {
    this.writeSpanId(this.#scratch, 0, number)
    return this.#scratch.toString('latin1', 0, spanIdDigits)
  }

  /** Whether the number has a span id: OpenTelemetry does not allow an id of zeros. */
  isSpanNumber(number: number): boolean {
    const first = this.#firstSpanWord(number)
    return first !== 0 || this.#lastSpanWord(number, first) !== 0
  }

  #firstSpanWord(number: number): number {
    return mix((number | 0) ^ (this.key[4] as number))
  }

  #lastSpanWord(number: number, first: number): number {
    return mix(((number / two32) | 0) ^ mix(first ^ (this.key[5] as number)))
  }
}
