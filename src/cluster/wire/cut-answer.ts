/**
 * Splits an answer that exceeds the broker's limit into several messages. If one part is lost, the
 * whole answer is lost.
 */

import { decode, encode } from './codec.ts'
import { type Key, emptyHeader, open, seal, sealBytes } from './envelope.ts'

export function sealAnswer(
  key: Key,
  subject: string,
  nonce: number,
  answer: unknown,
  limitBytes: number,
): readonly Buffer[] {
  const payload = encode(answer)
  const header = { ...emptyHeader, epoch: nonce }
  if (payload.length <= limitBytes) return [sealBytes(key, subject, header, payload)]
  const count = Math.ceil(payload.length / partBytes(limitBytes))
  return Array.from({ length: count }, (_, index) => {
    const from = index * partBytes(limitBytes)
    const part = payload.subarray(from, from + partBytes(limitBytes))
    return seal(key, subject, { ...header, number: index + 1, acknowledged: count }, part)
  })
}

/** The number of bytes that serialization adds to a part. */
const partOverheadBytes = 64
const partBytes = (limitBytes: number): number => limitBytes - partOverheadBytes

/** Collects the parts of an answer. Ignores unsigned messages, which any client may send. */
export class ReceivedAnswer {
  readonly #nonce: number
  readonly #key: Key
  readonly #subject: string
  readonly #parts = new Map<number, Uint8Array>()
  payload: unknown = null

  constructor(nonce: number, key: Key, subject: string) {
    this.#nonce = nonce
    this.#key = key
    this.#subject = subject
  }

  addPart(data: Uint8Array): boolean {
    try {
      const { epoch, number, acknowledged: count, payload } = open(this.#key, this.#subject, data)
      if (epoch !== this.#nonce) return false
      if (number === 0) this.payload = payload
      else this.#parts.set(number, payload as Uint8Array)
      if (number === 0) return true
      if (this.#parts.size < count) return false
      const parts = Array.from({ length: count }, (_, at) => this.#parts.get(at + 1) ?? emptyBytes)
      this.payload = decode(Buffer.concat(parts))
      return true
    } catch {
      return false
    }
  }
}

const emptyBytes = new Uint8Array()
