/**
 * The memory that a pool and one worker share: which jobs are claimed, when they ran, and the
 * values they returned, if these are small primitives. It stays readable after the worker's exit.
 */

import { availableParallelism } from 'node:os'

/** The maximum number of jobs in a batch. */
export const bankSize = 256
/** The maximum number of batches that a worker holds: a running one and a waiting one. */
export const bankCount = 2
/**
 * A pool or worker that expects an answer within this time polls for it instead of blocking. 0 on a
 * single core, where the polling side would keep the other from running.
 */
export const briskMs = availableParallelism() > 1 ? 0.1 : 0
const slotCount = bankSize * bankCount
/** Bytes for the texts that the jobs of one batch return. */
const textSize = 16_384
const maxTextLength = 1024

const claim = { free: 0, begun: 1, revoked: 2 } as const

/** The type of a returned value; `message` if the job's result is sent as a separate message. */
const ending = {
  undefined: 0,
  null: 1,
  false: 2,
  true: 3,
  number: 4,
  text: 5,
  message: 6,
} as const

/**
 * Each job occupies a slot; the jobs of a batch occupy consecutive slots of one bank. The worker
 * passes the slots of a bank in order. A slot is complete before `passed` counts it.
 */
export class Mailbox {
  readonly memory: SharedArrayBuffer
  /**
   * Machine times by slot. A start is written before the job is claimed; it is NaN until the job's
   * module has been imported.
   */
  readonly starts: Float64Array
  readonly ends: Float64Array
  readonly #importing: Float64Array
  readonly #numbers: Float64Array
  readonly #claims: Int32Array
  readonly #endings: Int32Array
  readonly #offsets: Int32Array
  readonly #passed: Int32Array
  readonly #rings: Int32Array
  readonly #watched: Int32Array
  readonly #texts: readonly Buffer[]
  #textEnd = 0

  constructor(memory?: SharedArrayBuffer) {
    const texts = slotCount * (3 * 8 + 3 * 4) + 8 + (bankCount + 2) * 4
    this.memory = memory ?? new SharedArrayBuffer(texts + bankCount * textSize)
    let at = 0
    const doubles = (length = slotCount): Float64Array => {
      at += length * 8
      return new Float64Array(this.memory, at - length * 8, length)
    }
    const integers = (length = slotCount): Int32Array => {
      at += length * 4
      return new Int32Array(this.memory, at - length * 4, length)
    }
    this.starts = doubles()
    this.ends = doubles()
    this.#numbers = doubles()
    this.#importing = doubles(1)
    this.#claims = integers()
    this.#endings = integers()
    this.#offsets = integers()
    this.#passed = integers(bankCount)
    this.#rings = integers(1)
    this.#watched = integers(1)
    this.#texts = Array.from({ length: bankCount }, (_, bank) =>
      Buffer.from(this.memory, texts + bank * textSize, textSize),
    )
  }

  /** For the pool: clears the bank for a new batch. The worker must not be using the bank. */
  reset(bank: number, count: number): void {
    this.#claims.fill(claim.free, bank * bankSize, bank * bankSize + count)
    Atomics.store(this.#passed, bank, 0)
  }

  /** When the worker began to import a job's module, in machine time; 0 if it imports none. */
  get importingSince(): number {
    return this.#importing[0] ?? 0
  }

  set importingSince(at: number) {
    this.#importing[0] = at
  }

  /** For the pool: announces that a batch was sent. */
  ring(): void {
    Atomics.add(this.#rings, 0, 1)
  }

  /** For the worker: how many batches were sent so far. Takes no lock. */
  get rings(): number {
    return Atomics.load(this.#rings, 0)
  }

  /** For the pool: marks the bank whose only job it polls for; `null` for none. */
  watch(bank: number | null): void {
    Atomics.store(this.#watched, 0, bank === null ? 0 : bank + 1)
  }

  /** For the worker, after it passed a slot: whether the pool polls and needs no message. */
  isWatched(bank: number): boolean {
    return Atomics.load(this.#watched, 0) === bank + 1
  }

  /** For the pool: whether the bank's first job has ended and its result is in the mailbox. */
  hasAnswered(bank: number): boolean {
    return this.passed(bank) > 0 && !this.isLeftToMessage(bank * bankSize)
  }

  /** For the worker, before a batch: discards the texts of the previous batch. */
  rewind(): void {
    this.#textEnd = 0
  }

  /** For the worker: claims the job; `false` if it was revoked. */
  begin(slot: number): boolean {
    return Atomics.compareExchange(this.#claims, slot, claim.free, claim.begun) === claim.free
  }

  /** Undoes `begin` for a job that was sent, but that its process never began. */
  unbegin(slot: number): void {
    Atomics.compareExchange(this.#claims, slot, claim.begun, claim.free)
  }

  /** For the pool: revokes the job; `false` if it has begun. */
  revoke(slot: number): boolean {
    return Atomics.compareExchange(this.#claims, slot, claim.free, claim.revoked) === claim.free
  }

  hasBegun(slot: number): boolean {
    return Atomics.load(this.#claims, slot) === claim.begun
  }

  /** How many slots of the bank the worker has finished. */
  passed(bank: number): number {
    return Atomics.load(this.#passed, bank)
  }

  pass(bank: number, count: number): void {
    Atomics.store(this.#passed, bank, count)
  }

  /** Stores a returned value; `false` if it has to be sent as a message. */
  write(slot: number, value: unknown): boolean {
    switch (typeof value) {
      case 'undefined':
        this.#endings[slot] = ending.undefined
        return true
      case 'boolean':
        this.#endings[slot] = value ? ending.true : ending.false
        return true
      case 'number':
        this.#endings[slot] = ending.number
        this.#numbers[slot] = value
        return true
      case 'string':
        return this.#writeText(slot, value)
      default:
        this.#endings[slot] = value === null ? ending.null : ending.message
        return value === null
    }
  }

  leaveToMessage(slot: number): void {
    this.#endings[slot] = ending.message
  }

  isLeftToMessage(slot: number): boolean {
    return this.#endings[slot] === ending.message
  }

  read(slot: number): unknown {
    switch (this.#endings[slot]) {
      case ending.null:
        return null
      case ending.false:
        return false
      case ending.true:
        return true
      case ending.number:
        return this.#numbers[slot]
      case ending.text: {
        const from = this.#offsets[slot] ?? 0
        const text = this.#texts[Math.floor(slot / bankSize)]
        return text?.toString('utf16le', from, from + (this.#numbers[slot] ?? 0))
      }
      default:
        return undefined
    }
  }

  /** UTF-16 keeps lone surrogates, which UTF-8 would replace. */
  #writeText(slot: number, value: string): boolean {
    const length = value.length * 2
    if (value.length > maxTextLength || this.#textEnd + length > textSize) {
      this.#endings[slot] = ending.message
      return false
    }
    this.#texts[Math.floor(slot / bankSize)]?.write(value, this.#textEnd, 'utf16le')
    this.#endings[slot] = ending.text
    this.#offsets[slot] = this.#textEnd
    this.#numbers[slot] = length
    this.#textEnd += length
    return true
  }
}
