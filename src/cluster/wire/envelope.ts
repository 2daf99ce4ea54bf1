/**
 * The envelope of every message: a version, a signature, and numbers that prevent replay. Nothing
 * is decoded before the signature is checked.
 */

import { hash, hkdfSync, randomInt, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { decode, encode } from './codec.ts'
import { protocolVersion, type SessionRun, toToken, toSessionUseId } from './subjects.ts'

/** The sender of a message, and the message's position among those of its sender. */
export interface Header {
  /** What `number` counts within: a link, a start of the sender, or the answers to a request. */
  readonly scope: number
  /**
   * The number of the message from this sender to this receiver, from 1; 0 if it is not numbered.
   */
  readonly number: number
  /** The sender has received all messages of the receiver up to this number. */
  readonly acknowledged: number
}

/** The header of a message that is not numbered. */
export const emptyHeader: Header = Object.freeze({ scope: 0, number: 0, acknowledged: 0 })

export interface OpenedMessage extends Header {
  readonly payload: unknown
}

/**
 * Creates a random number that identifies a start of an agent, a link or a use. It is not a time,
 * because clocks may be set back, so such numbers have no order.
 */
export const newScope = (): number => randomInt(1, 2 ** 48)

/**
 * Returns the number of a driver's start: greater than `latest`, even if the clock was set back.
 * The random part avoids equal numbers.
 */
export const newDriverStart = (clock: Clock, latest: number): number =>
  Math.max(clock.now() * 1000, latest + 1) + randomInt(1000) / 1000

/** Creates a nonce, which identifies a request. Answers to earlier requests have other nonces. */
export const newNonce = (): number => randomInt(2 ** 47)

/** Issues nonces on request. Each is valid once, which prevents the replay of its message. */
export class Challenges {
  readonly #open = new Set<number>()

  issue(): number {
    const nonce = newNonce()
    this.#open.add(nonce)
    const [oldest = 0] = this.#open
    if (this.#open.size > maxChallenges) this.#open.delete(oldest)
    return nonce
  }

  redeem(nonce: number): boolean {
    return this.#open.delete(nonce)
  }
}

const maxChallenges = 1000

export type Key = SigningKey

/** One key for each direction, so that a message cannot be reflected to its sender. */
export interface Keys {
  readonly toAgent: Key
  readonly toDriver: Key
}

/**
 * The keys of a run, or of the cluster if `run` is `null`. Each run has keys of its own, so that
 * its messages cannot be replayed in another run.
 */
export function deriveKeys(token: string, run: SessionRun | null): Keys {
  const scope = run === null ? '' : toToken(JSON.stringify([run.run, toSessionUseId(run)]))
  const derive = (direction: string): Key =>
    new SigningKey(Buffer.from(hkdfSync('sha256', token, 'tutti', `${direction}:${scope}`, 32)))
  return { toAgent: derive('to agent'), toDriver: derive('to driver') }
}

/** Thrown if the sender of a message does not have the token or does not follow this protocol. */
class RefusedMessageError extends Error {
  override readonly name = 'RefusedMessageError'
}

/** Thrown if the sender has another token or the message was altered. */
export class WrongSignatureError extends RefusedMessageError {}

/** Thrown if the other side uses another version of the protocol. */
export class VersionMismatchError extends BackendError {
  readonly ours: number
  readonly theirs: number
  /** The agent's name, if the message is an announcement; `null` for any other message. */
  readonly agent: string | null

  constructor(ours: number, theirs: number, agent: string | null = null) {
    const sender = agent === null ? 'the other side' : `agent "${agent}"`
    super(`${sender} uses version ${theirs} of the protocol, this side version ${ours}`, {
      code: 'VersionMismatchError',
      hint: 'Install the same version of tutti on both sides.',
    })
    this.ours = ours
    this.theirs = theirs
    this.agent = agent
  }
}

const macLength = 32
const macStart = 1
const headerStart = macStart + macLength
const payloadStart = headerStart + 3 * 8

export function seal(key: Key, subject: string, header: Header, payload: unknown): Buffer {
  return sealBytes(key, subject, header, encode(payload))
}

/** Like `seal`, but for a payload that is already serialized. */
export function sealBytes(key: Key, subject: string, header: Header, payload: Buffer): Buffer {
  const message = Buffer.allocUnsafe(payloadStart + payload.length)
  message[0] = protocolVersion
  message.writeDoubleLE(header.scope, headerStart)
  message.writeDoubleLE(header.number, headerStart + 8)
  message.writeDoubleLE(header.acknowledged, headerStart + 16)
  payload.copy(message, payloadStart)
  sign(key, subject, message).copy(message, macStart)
  return message
}

/**
 * Checks and decodes a message. Throws `RefusedMessageError` or `VersionMismatchError`. Version,
 * signature and the name in announcements have the same form in all versions of the protocol.
 */
export function open(key: Key, subject: string, data: Uint8Array): OpenedMessage {
  const message = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  if (message.length < payloadStart) throw new RefusedMessageError('it is too short')
  const given = message.subarray(macStart, headerStart)
  if (!timingSafeEqual(given, sign(key, subject, message))) {
    throw new WrongSignatureError('its signature is wrong')
  }
  const version = message[0] ?? 0
  if (version !== protocolVersion) {
    throw new VersionMismatchError(protocolVersion, version, readAnnouncedName(message))
  }
  const scope = message.readDoubleLE(headerStart)
  const number = message.readDoubleLE(headerStart + 8)
  const acknowledged = message.readDoubleLE(headerStart + 16)
  if (![number, acknowledged].every((one) => Number.isSafeInteger(one) && one >= 0)) {
    throw new RefusedMessageError('its number is not an integer from 0')
  }
  try {
    return { scope, number, acknowledged, payload: decode(message.subarray(payloadStart)) }
  } catch {
    throw new RefusedMessageError('it cannot be decoded')
  }
}

/**
 * Reads a header without checking the signature, because the sender may have another token. Returns
 * `null` if the bytes are not a numbered message of this version.
 */
export function readHeader(data: Uint8Array): Pick<Header, 'scope' | 'number'> | null {
  const message = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  if (message.length < payloadStart || message[0] !== protocolVersion) return null
  const scope = message.readDoubleLE(headerStart)
  const number = message.readDoubleLE(headerStart + 8)
  return scope > 0 && Number.isSafeInteger(number) && number >= 0 ? { scope, number } : null
}

/** Whether the message is an answer to the request with this nonce and is signed with the key. */
export function isAnswerTo(nonce: number, key: Key, subject: string, answer: Uint8Array): boolean {
  try {
    return open(key, subject, answer).scope === nonce
  } catch {
    return false
  }
}

/** Returns the name if the message is an announcement of another version, `null` otherwise. */
function readAnnouncedName(message: Buffer): string | null {
  try {
    const { name } = decode(message.subarray(payloadStart)) as { readonly name?: unknown }
    return typeof name === 'string' ? name : null
  } catch {
    return null
  }
}

const sign = (key: Key, subject: string, message: Buffer): Buffer =>
  key.sign(subject, message[0] ?? 0, message.subarray(headerStart))

const algorithm = 'sha256'
const blockBytes = 64

let hashBuffer = Buffer.alloc(64 * 1024)

/**
 * Signs with HMAC-SHA-256 (RFC 2104). Node's own `Hmac` costs more than hashing a short message.
 * This class prepares the key once for all messages.
 */
export class SigningKey {
  /** The key XORed with the inner padding. It precedes the message. */
  readonly #inner: Buffer
  /** The key XORed with the outer padding, followed by space for the inner hash. */
  readonly #outer: Buffer

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
    if (hashBuffer.length < length) hashBuffer = Buffer.alloc(length * 2)
    this.#inner.copy(hashBuffer)
    hashBuffer.write(subject, blockBytes, 'latin1')
    hashBuffer[from - 2] = 0
    hashBuffer[from - 1] = version
    hashBuffer.set(content, from)
    hash(algorithm, hashBuffer.subarray(0, length), 'buffer').copy(this.#outer, blockBytes)
    return hash(algorithm, this.#outer, 'buffer')
  }
}
