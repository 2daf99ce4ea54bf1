/**
 * The memory that a pool shares with one worker, for claims, times and small primitive results of
 * jobs. It stays readable after the worker's exit.
 */

import { availableParallelism } from 'node:os'

/** The maximum number of jobs in a batch. */
export const bankSize = 256
/** The maximum number of batches per worker: a running one and a waiting one. */
export const bankCount = 2
/**
 * How long a pool or worker polls for an expected answer before it blocks. It is 0 on a single
 * core, where polling would stop the other side.
 */
export const busyPollMs = availableParallelism() > 1 ? 0.1 : 0
const slotCount = bankSize * bankCount
const textBytes = 16_384
const maxTextLength = 1024

const claimState = { free: 0, begun: 1, revoked: 2 } as const

/** The type of a result; `message` if the result is sent as a separate message. */
const resultType = {
  undefined: 0,
  null: 1,
  false: 2,
  true: 3,
  number: 4,
  text: 5,
  message: 6,
} as const

/**
 * The shared memory. Each job occupies a slot. The jobs of a batch occupy consecutive slots of one
 * bank, and the worker finishes them in order. A slot is complete before `finishedCount` includes
 * it.
 */
export class Mailbox {
  readonly memory: SharedArrayBuffer
  /**
   * Machine times by slot. The start of a job is written before the job is claimed. It is NaN until
   * the job's module has been imported.
   */
  readonly starts: Float64Array
  readonly ends: Float64Array
  readonly #importing: Float64Array
  readonly #numbers: Float64Array
  readonly #claims: Int32Array
  readonly #resultTypes: Int32Array
  readonly #offsets: Int32Array
  readonly #finishedCounts: Int32Array
  readonly #announced: Int32Array
  readonly #polledBank: Int32Array
  readonly #texts: readonly Buffer[]
  #textEnd = 0

  constructor(memory?: SharedArrayBuffer) {
    const texts = slotCount * (3 * 8 + 3 * 4) + 8 + (bankCount + 2) * 4
    this.memory = memory ?? new SharedArrayBuffer(texts + bankCount * textBytes)
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
    this.#resultTypes = integers()
    this.#offsets = integers()
    this.#finishedCounts = integers(bankCount)
    this.#announced = integers(1)
    this.#polledBank = integers(1)
    this.#texts = Array.from({ length: bankCount }, (_, bank) =>
      Buffer.from(this.memory, texts + bank * textBytes, textBytes),
    )
  }

  /** Called by the pool to clear a bank that the worker does not use. */
  reset(bank: number, count: number): void {
    this.#claims.fill(claimState.free, bank * bankSize, bank * bankSize + count)
    Atomics.store(this.#finishedCounts, bank, 0)
  }

  /** The machine time at which the worker began to import a module; 0 if it is not importing. */
  get importStart(): number {
    return this.#importing[0] ?? 0
  }

  set importStart(at: number) {
    this.#importing[0] = at
  }

  announceBatch(): void {
    Atomics.add(this.#announced, 0, 1)
  }

  get announcedBatches(): number {
    return Atomics.load(this.#announced, 0)
  }

  /**
   * Called by the pool to set the bank that it polls; `null` for none. A polled bank has only one
   * job.
   */
  setPolledBank(bank: number | null): void {
    Atomics.store(this.#polledBank, 0, bank === null ? 0 : bank + 1)
  }

  /** Whether the pool polls this bank. If so, the worker need not send a message. */
  isPolled(bank: number): boolean {
    return Atomics.load(this.#polledBank, 0) === bank + 1
  }

  hasResult(bank: number): boolean {
    return this.finishedCount(bank) > 0 && !this.isSentAsMessage(bank * bankSize)
  }

  /** Called by the worker before a batch to discard the texts of the previous batch. */
  discardTexts(): void {
    this.#textEnd = 0
  }

  /** Called by the worker to claim a job. Returns `false` if the job was revoked. */
  claim(slot: number): boolean {
    return (
      Atomics.compareExchange(this.#claims, slot, claimState.free, claimState.begun) ===
      claimState.free
    )
  }

  /** Undoes `claim` for a job that was sent to a process but did not begin there. */
  unclaim(slot: number): void {
    Atomics.compareExchange(this.#claims, slot, claimState.begun, claimState.free)
  }

  /** Called by the pool to revoke a job. Returns `false` if the job was claimed. */
  revoke(slot: number): boolean {
    return (
      Atomics.compareExchange(this.#claims, slot, claimState.free, claimState.revoked) ===
      claimState.free
    )
  }

  isClaimed(slot: number): boolean {
    return Atomics.load(this.#claims, slot) === claimState.begun
  }

  finishedCount(bank: number): number {
    return Atomics.load(this.#finishedCounts, bank)
  }

  setFinishedCount(bank: number, count: number): void {
    Atomics.store(this.#finishedCounts, bank, count)
  }

  /** Stores a result. Returns `false` if the result must be sent as a message. */
  write(slot: number, value: unknown): boolean {
    switch (typeof value) {
      case 'undefined':
        this.#resultTypes[slot] = resultType.undefined
        return true
      case 'boolean':
        this.#resultTypes[slot] = value ? resultType.true : resultType.false
        return true
      case 'number':
        this.#resultTypes[slot] = resultType.number
        this.#numbers[slot] = value
        return true
      case 'string':
        return this.#writeText(slot, value)
      default:
        this.#resultTypes[slot] = value === null ? resultType.null : resultType.message
        return value === null
    }
  }

  markAsMessage(slot: number): void {
    this.#resultTypes[slot] = resultType.message
  }

  isSentAsMessage(slot: number): boolean {
    return this.#resultTypes[slot] === resultType.message
  }

  read(slot: number): unknown {
    switch (this.#resultTypes[slot]) {
      case resultType.null:
        return null
      case resultType.false:
        return false
      case resultType.true:
        return true
      case resultType.number:
        return this.#numbers[slot]
      case resultType.text: {
        const from = this.#offsets[slot] ?? 0
        const text = this.#texts[Math.floor(slot / bankSize)]
        return text?.toString('utf16le', from, from + (this.#numbers[slot] ?? 0))
      }
      default:
        return undefined
    }
  }

  /** Uses UTF-16, because UTF-8 would replace lone surrogates. */
  #writeText(slot: number, value: string): boolean {
    const length = value.length * 2
    if (value.length > maxTextLength || this.#textEnd + length > textBytes) {
      this.#resultTypes[slot] = resultType.message
      return false
    }
    this.#texts[Math.floor(slot / bankSize)]?.write(value, this.#textEnd, 'utf16le')
    this.#resultTypes[slot] = resultType.text
    this.#offsets[slot] = this.#textEnd
    this.#numbers[slot] = length
    this.#textEnd += length
    return true
  }
}
