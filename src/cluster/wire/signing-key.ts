/**
 * HMAC with SHA-256, as RFC 2104 defines it, of messages on subjects. Node's own `Hmac` looks its
 * algorithm up and creates objects for every message, which costs more than the hash of a short
 * one; here what depends on the key alone is computed once.
 */

import { hash } from 'node:crypto'

const algorithm = 'sha256'
const blockBytes = 64
export const macLength = 32

/** What is hashed, in one piece; used by one call at a time. */
let pieces = Buffer.alloc(64 * 1024)

export class SigningKey {
  /** The key, as it comes before the message. */
  readonly #inner: Buffer
  /** The key, as it comes before the hash of that; and room for this hash. */
  readonly #outer: Buffer

  /** `secret` is not longer than a block. */
  constructor(secret: Uint8Array) {
    if (secret.length > blockBytes) throw new RangeError('the key is too long')
    this.#inner = Buffer.alloc(blockBytes, 0x36)
    this.#outer = Buffer.alloc(blockBytes + macLength, 0x5c)
    for (const [at, byte] of secret.entries()) {
      this.#inner[at] = byte ^ 0x36
      this.#outer[at] = byte ^ 0x5c
    }
  }

  /** Covers the subject: a message cannot be sent again under another one. */
  sign(subject: string, version: number, content: Uint8Array): Buffer {
    const from = blockBytes + subject.length + 2
    const length = from + content.length
    if (pieces.length < length) pieces = Buffer.alloc(length * 2)
    this.#inner.copy(pieces)
    pieces.write(subject, blockBytes, 'latin1')
    pieces[from - 2] = 0
    pieces[from - 1] = version
    pieces.set(content, from)
    hash(algorithm, pieces.subarray(0, length), 'buffer').copy(this.#outer, blockBytes)
    return hash(algorithm, this.#outer, 'buffer')
  }
}
