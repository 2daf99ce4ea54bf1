/**
 * Random identifiers and numbers, the format of generated uids, and the parts of hashes. Random
 * bytes are taken from a pool, so that one system call serves many identifiers.
 */

import { randomFillSync, randomInt } from 'node:crypto'

class RandomPool {
  readonly #bytes: Buffer
  readonly #width: number
  readonly #prepare: (bytes: Buffer) => void
  #next: number

  constructor(width: number, prepare: (bytes: Buffer) => void = () => {}) {
    this.#bytes = Buffer.allocUnsafe(width * 512)
    this.#width = width
    this.#prepare = prepare
    this.#next = this.#bytes.length
  }

  take(): string {
    if (this.#next === this.#bytes.length) {
      randomFillSync(this.#bytes)
      this.#prepare(this.#bytes)
      this.#next = 0
    }
    const start = this.#next
    this.#next += this.#width
    return this.#bytes.toString('hex', start, this.#next)
  }
}

function markAsUuid4(bytes: Buffer): void {
  for (let at = 0; at < bytes.length; at += 16) {
    bytes[at + 6] = ((bytes[at + 6] ?? 0) & 0x0f) | 0x40
    bytes[at + 8] = ((bytes[at + 8] ?? 0) & 0x3f) | 0x80
  }
}

/** Sets one bit of each id, because OpenTelemetry does not allow an id of zeros. */
function neverZero(width: number): (bytes: Buffer) => void {
  return (bytes) => {
    for (let at = width - 1; at < bytes.length; at += width) bytes[at] = (bytes[at] ?? 0) | 1
  }
}

const uuids = new RandomPool(16, markAsUuid4)
const traceIds = new RandomPool(16, neverZero(16))
const spanIds = new RandomPool(8, neverZero(8))

/** A UUID4 as 32 hex digits. */
export const newUuid = (): string => uuids.take()
/** 32 hex digits, never all zero. */
export const newTraceId = (): string => traceIds.take()
/** 16 hex digits, never all zero. */
export const newSpanId = (): string => spanIds.take()

const steps = 2 ** 47
/** A random number from 0 to below 1. */
export const randomFraction = (): number => randomInt(steps) / steps

const uidPrefix = 'task-'
const minDigits = 6
/** A number with this many digits is exact in JavaScript, and no process generates more. */
const maxDigits = 14
const zero = 48

/** The generated uid of a task with this number. */
export const uidOfNumber = (number: number): string =>
  uidPrefix + String(number).padStart(minDigits, '0')

/** The number of a uid that looks generated, even if a caller chose it; otherwise `null`. */
export function generatedNumber(uid: string): number | null {
  const digits = uid.length - uidPrefix.length
  if (digits < minDigits || digits > maxDigits || !uid.startsWith(uidPrefix)) return null
  if (digits > minDigits && uid.charCodeAt(uidPrefix.length) === zero) return null
  let number = 0
  for (let at = uidPrefix.length; at < uid.length; at++) {
    const digit = uid.charCodeAt(at) - zero
    if (digit < 0 || digit > 9) return null
    number = number * 10 + digit
  }
  return number
}

/*
 * Hashes of definitions: three digests joined by dots. The first one, of the code, is followed by a
 * mark if the session has used another function with the same code before. The functions may have
 * captured different variables, so the hash identifies none of them.
 */

const mark = '~'
const digestLength = 32

export const markedCode = (code: string): string => `${code}${mark}`

export const isMarked = (hash: string): boolean => hash[digestLength] === mark

/** The hash without the mark, for tasks that are identified by their uid. */
export const unmarked = (hash: string): string => (isMarked(hash) ? hash.replace(mark, '') : hash)

/** The digest of the input. */
export const inputPartOf = (hash: string): string => hash.split('.', 2)[1] ?? ''

/** The digest of the code, without a mark. */
export const codePartOf = (hash: string): string => hash.slice(0, digestLength)

/** The `backend` in events of workflow blocks, which do not run on a real backend. */
export const blockBackend = 'workflow'
