/** Random identifiers and numbers, from a pool, so that one system call serves many. */

import { randomFillSync, randomInt } from 'node:crypto'

class RandomPool {
  readonly #bytes: Buffer
  readonly #width: number
  readonly #prepare: (bytes: Buffer) => void
  #position: number

  constructor(width: number, prepare: (bytes: Buffer) => void = () => {}) {
    this.#bytes = Buffer.allocUnsafe(width * 512)
    this.#width = width
    this.#prepare = prepare
    this.#position = this.#bytes.length
  }

  next(): string {
    if (this.#position === this.#bytes.length) {
      randomFillSync(this.#bytes)
      this.#prepare(this.#bytes)
      this.#position = 0
    }
    const start = this.#position
    this.#position += this.#width
    return this.#bytes.toString('hex', start, this.#position)
  }
}

function markAsUuid4(bytes: Buffer): void {
  for (let at = 0; at < bytes.length; at += 16) {
    bytes[at + 6] = ((bytes[at + 6] ?? 0) & 0x0f) | 0x40
    bytes[at + 8] = ((bytes[at + 8] ?? 0) & 0x3f) | 0x80
  }
}

/** Sets the lowest bit of each id, because OpenTelemetry does not allow an id of zeros. */
function setLowestBit(width: number): (bytes: Buffer) => void {
  return (bytes) => {
    for (let at = width - 1; at < bytes.length; at += width) bytes[at] = (bytes[at] ?? 0) | 1
  }
}

const uuids = new RandomPool(16, markAsUuid4)
const traceIds = new RandomPool(16, setLowestBit(16))
const spanIds = new RandomPool(8, setLowestBit(8))

/** A UUID4 as 32 hex digits. */
export const newUuid = (): string => uuids.next()
/** A trace id: 32 hex digits, never all zero. */
export const newTraceId = (): string => traceIds.next()
/** A span id: 16 hex digits, never all zero. */
export const newSpanId = (): string => spanIds.next()

const randomSteps = 2 ** 47
/** A random number from 0 to below 1. */
export const randomFraction = (): number => randomInt(randomSteps) / randomSteps

const uidPrefix = 'task-'
const minDigits = 6
/** The maximum number of digits in a generated uid. JavaScript stores such integers exactly. */
const maxDigits = 14
const zeroCode = 48

/** The generated uid of a task with this number. */
export const formatUid = (number: number): string =>
  uidPrefix + String(number).padStart(minDigits, '0')

/** The number in a uid that has the generated form, such as `task-000042`; otherwise `null`. */
export function parseUidNumber(uid: string): number | null {
  const digits = uid.length - uidPrefix.length
  if (digits < minDigits || digits > maxDigits || !uid.startsWith(uidPrefix)) return null
  if (digits > minDigits && uid.charCodeAt(uidPrefix.length) === zeroCode) return null
  let number = 0
  for (let at = uidPrefix.length; at < uid.length; at++) {
    const digit = uid.charCodeAt(at) - zeroCode
    if (digit < 0 || digit > 9) return null
    number = number * 10 + digit
  }
  return number
}

/*
 * A definition hash is three digests joined by dots: code, input, dependencies. A `~` follows the
 * code digest if the session has used another function with the same code before. The two functions
 * may have captured different variables, so the hash does not tell them apart.
 */

const ambiguityMark = '~'
const digestLength = 32

export const addMark = (code: string): string => `${code}${ambiguityMark}`

export const isMarked = (hash: string): boolean => hash[digestLength] === ambiguityMark

/** The hash without the ambiguity mark, for tasks that are identified by their uid. */
export const removeMark = (hash: string): string =>
  isMarked(hash) ? hash.replace(ambiguityMark, '') : hash

export const inputDigestOf = (hash: string): string => hash.split('.', 2)[1] ?? ''

/** The digest of the code, without the ambiguity mark. */
export const codeDigestOf = (hash: string): string => hash.slice(0, digestLength)

/** The value of `backend` in events of workflow blocks, which run on no backend. */
export const blockBackend = 'workflow'
