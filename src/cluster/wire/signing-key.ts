/**
 * Signs messages and their subjects with HMAC-SHA-256 (RFC 2104). Node's own `Hmac` looks up its
 * algorithm and creates objects for each message, which costs more than hashing a short message;
 * here, everything that depends on the key alone is computed once.
 */

import { hash } from 'node:crypto'

const algorithm = 'sha256'
const blockBytes = 64
export const macLength = 32

/** Reused for all hashes: holds the key block, the subject and the message in one piece. */
let pieces = Buffer.alloc(64 * 1024)

export class SigningKey {
  /** The key XORed with the inner padding, which precedes the message. */
  readonly #inner: Buffer
  /** The key XORed with the outer padding, followed by space for the inner hash. */
  readonly #outer: Buffer

  /** `secret` must not be longer than a block. */
  constructor(secret: Uint8Array) {
    if (secret.length > blockBytes) throw new RangeError('the key is too long')
    this.#inner = Buffer.alloc(blockBytes, 0x36)
    this.#outer = Buffer.alloc(blockBytes + macLength, 0x5c)
    for (const [at, byte] of secret.entries()) {
      this.#inner[at] = byte ^ 0x36
      this.#outer[at] = byte ^ 0x5c
    }
  }

  /** The signature covers the subject, so that a message cannot be replayed on another subject. */
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
