/**
 * The envelope of every message: a version, a signature, and numbers that prevent replay. Nothing
 * of a message is decoded before its signature is checked.
 */

import { hash, hkdfSync, randomInt, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { decode, encode } from './codec.ts'
import { protocolVersion, type SessionRun, toToken, toUseId } from './subjects.ts'

/** The sender of a message, and the position of the message among those of its sender. */
export interface Header {
  /** Identifies the start of the sender, or the request that the message answers. */
  readonly epoch: number
  /** Counts the messages of this sender to this receiver from 1; 0 for uncounted messages. */
  readonly number: number
  /** The sender has received all messages of the receiver up to this number. */
  readonly acknowledged: number
}

/** The header of a message that is not part of a counted series. */
export const noHeader: Header = Object.freeze({ epoch: 0, number: 0, acknowledged: 0 })

export interface OpenedMessage extends Header {
  readonly payload: unknown
}

/**
 * Identifies a start or a connection. Epochs are random and unordered, because clocks may be set
 * back. Only an answer to a request proves which process is present.
 */
export const newEpoch = (): number => randomInt(1, 2 ** 48)

/**
 * Identifies a driver's start. It is greater than `latest`, the latest start of the session, even
 * if the clock was set back since. The random fraction distinguishes two starts at the same moment.
 */
export const newDriverEpoch = (clock: Clock, latest: number): number =>
  Math.max(clock.now() * 1000, latest + 1) + randomInt(1000) / 1000

/** Identifies a request, so that the answer to an earlier request is not accepted for it. */
export const newNonce = (): number => randomInt(2 ** 47)

/** Nonces that a sender must request. Each is valid once, which prevents replay. */
export class Challenges {
  readonly #open = new Set<number>()

  issue(): number {
    const nonce = newNonce()
    this.#open.add(nonce)
    const [oldest = 0] = this.#open
    if (this.#open.size > maxChallenges) this.#open.delete(oldest)
    return nonce
  }

  /** Returns `false` for a nonce that was already used, or was never issued. */
  take(nonce: number): boolean {
    return this.#open.delete(nonce)
  }
}

/** The maximum number of unused nonces that are kept. The oldest are dropped first. */
const maxChallenges = 1000

export type Key = SigningKey

/** One key for each direction, so that a message cannot be reflected to its sender. */
export interface Keys {
  readonly toAgent: Key
  readonly toDriver: Key
}

/**
 * The keys of a session's backend, or of the whole cluster if `run` is `null`. Each run of a
 * session has its own keys, so that messages of an earlier run cannot be replayed.
 */
export function deriveKeys(token: string, run: SessionRun | null): Keys {
  const scope = run === null ? '' : toToken(JSON.stringify([run.run, toUseId(run)]))
  const derive = (direction: string): Key =>
    new SigningKey(Buffer.from(hkdfSync('sha256', token, 'tutti', `${direction}:${scope}`, 32)))
  return { toAgent: derive('to agent'), toDriver: derive('to driver') }
}

/** A message whose sender does not have the token, or that does not follow this protocol. */
class RefusedMessageError extends Error {
  override readonly name = 'RefusedMessageError'
}

/** The sender has another token, or the message was altered. */
export class WrongSignatureError extends RefusedMessageError {}

/** The other side uses another version of the protocol. */
export class VersionMismatchError extends BackendError {
  readonly ours: number
  readonly theirs: number
  /** The name in the announcement of an agent; `null` for any other message. */
  readonly agent: string | null

  constructor(ours: number, theirs: number, agent: string | null = null) {
    const who = agent === null ? 'the other side' : `agent "${agent}"`
    super(`${who} uses version ${theirs} of the protocol, this side version ${ours}`, {
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

/** Like `seal`, for a payload that is already serialized. */
export function sealBytes(key: Key, subject: string, header: Header, payload: Buffer): Buffer {
  const message = Buffer.allocUnsafe(payloadStart + payload.length)
  message[0] = protocolVersion
  message.writeDoubleLE(header.epoch, headerStart)
  message.writeDoubleLE(header.number, headerStart + 8)
  message.writeDoubleLE(header.acknowledged, headerStart + 16)
  payload.copy(message, payloadStart)
  sign(key, subject, message).copy(message, macStart)
  return message
}

/** Replaces the signature of a message that was sealed with another key. */
export function signAgain(key: Key, subject: string, message: Buffer): void {
  sign(key, subject, message).copy(message, macStart)
}

/**
 * Throws `RefusedMessageError` or `VersionMismatchError`. All versions of the protocol have the
 * version and the signature at the same offsets, and a name in announcements.
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
    throw new VersionMismatchError(protocolVersion, version, announcedName(message))
  }
  const epoch = message.readDoubleLE(headerStart)
  const number = message.readDoubleLE(headerStart + 8)
  const acknowledged = message.readDoubleLE(headerStart + 16)
  if (![number, acknowledged].every((one) => Number.isSafeInteger(one) && one >= 0)) {
    throw new RefusedMessageError('its number is not an integer from 0')
  }
  try {
    return { epoch, number, acknowledged, payload: decode(message.subarray(payloadStart)) }
  } catch {
    throw new RefusedMessageError('it cannot be decoded')
  }
}

/**
 * Reads the position of a message without checking its signature, for messages whose sender has
 * another token; `null` if the bytes are not a counted message of this version.
 */
export function readHeader(data: Uint8Array): Pick<Header, 'epoch' | 'number'> | null {
  const message = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  if (message.length < payloadStart || message[0] !== protocolVersion) return null
  const epoch = message.readDoubleLE(headerStart)
  const number = message.readDoubleLE(headerStart + 8)
  return epoch > 0 && Number.isSafeInteger(number) && number > 0 ? { epoch, number } : null
}

/** Whether the message answers the request with this nonce, signed with the token. */
export function isAnswerTo(nonce: number, key: Key, subject: string, answer: Uint8Array): boolean {
  try {
    return open(key, subject, answer).epoch === nonce
  } catch {
    return false
  }
}

/** The agent's name in an announcement of another version, whose signature was checked. */
function announcedName(message: Buffer): string | null {
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

/** A buffer that is reused for all hashes, with the key block, the subject and the message. */
let pieces = Buffer.alloc(64 * 1024)

/**
 * Signs messages and their subjects with HMAC-SHA-256 (RFC 2104). Node's own `Hmac` looks up its
 * algorithm and creates objects for each message, which costs more than hashing a short message;
 * here, everything that depends on the key alone is computed once.
 */
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
