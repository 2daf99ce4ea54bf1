/**
 * What every message is wrapped in: a version, a signature, and numbers against replay. Nothing of
 * a message is decoded before its signature is checked.
 */

import { hkdfSync, randomInt, timingSafeEqual } from 'node:crypto'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { decode, encode } from './codec.ts'
import { macLength, SigningKey } from './signing-key.ts'
import { protocolVersion, type SessionRun, toToken, toUseId } from './subjects.ts'

/** Who sent a message, and where it stands among the sender's messages. */
export interface Header {
  /** The start of the sender, or the request that this answers. */
  readonly epoch: number
  /** Counts the messages of this sender to this receiver from 1; 0 for one that is not counted. */
  readonly number: number
  /** The receiver's messages that the sender has, up to this number. */
  readonly acknowledged: number
}

/** Of a message that is no part of a counted series. */
export const noHeader: Header = Object.freeze({ epoch: 0, number: 0, acknowledged: 0 })

export interface OpenedMessage extends Header {
  readonly payload: unknown
}

/**
 * Names a start, or a connection. No two are the same, and none is later than another: clocks are
 * set back. Who is there now is known by the answer to a request.
 */
export const newEpoch = (): number => randomInt(1, 2 ** 48)

/**
 * Names a driver's start, which has to be later than the `latest` one of its session: the clock may
 * have been set back since. Two that start at the same moment differ.
 */
export const newDriverEpoch = (clock: Clock, latest: number): number =>
  Math.max(clock.now() * 1000, latest + 1) + randomInt(1000) / 1000

/** Names a request, so that its answer cannot be that of an earlier one. */
export const newNonce = (): number => randomInt(2 ** 47)

/** Numbers that a sender must ask for, each good for one message: it cannot be sent again. */
export class Challenges {
  readonly #open = new Set<number>()

  issue(): number {
    const nonce = newNonce()
    this.#open.add(nonce)
    const [oldest = 0] = this.#open
    if (this.#open.size > mostChallenges) this.#open.delete(oldest)
    return nonce
  }

  /** `false` for one that was used, or was never issued. */
  take(nonce: number): boolean {
    return this.#open.delete(nonce)
  }
}

/** Those that nobody has used are forgotten beyond this number. */
const mostChallenges = 1000

export type Key = SigningKey

/** One key for each direction: a message cannot be sent back to its sender. */
export interface Keys {
  readonly toAgent: Key
  readonly toDriver: Key
}

/**
 * The keys of a backend of a session, or of the whole cluster without one. Each run of a session
 * has its own: what was sent in one that is over cannot be sent again in the next.
 */
export function deriveKeys(token: string, run: SessionRun | null): Keys {
  const scope = run === null ? '' : toToken(JSON.stringify([run.run, toUseId(run)]))
  const derive = (direction: string): Key =>
    new SigningKey(Buffer.from(hkdfSync('sha256', token, 'tutti', `${direction}:${scope}`, 32)))
  return { toAgent: derive('to agent'), toDriver: derive('to driver') }
}

/** A message that was not sent by someone with the token, or not by this protocol. */
class RefusedMessageError extends Error {
  override readonly name = 'RefusedMessageError'
}

/** Of a sender with another token, or of one that altered a message. */
export class WrongSignatureError extends RefusedMessageError {}

/** Another version of the protocol on the other side. */
export class VersionMismatchError extends BackendError {
  readonly ours: number
  readonly theirs: number
  /** The name of an agent that announces itself; `null` for any other message. */
  readonly agent: string | null

  constructor(ours: number, theirs: number, agent: string | null = null) {
    const who = agent === null ? 'the other side' : `agent "${agent}"`
    super(`${who} speaks protocol ${theirs}, this side speaks ${ours}`, {
      code: 'VersionMismatchError',
      hint: 'Install the same version of tutti on both sides.',
    })
    this.ours = ours
    this.theirs = theirs
    this.agent = agent
  }
}

const macStart = 1
const headerStart = macStart + macLength
const payloadStart = headerStart + 3 * 8

export function seal(key: Key, subject: string, header: Header, payload: unknown): Buffer {
  return sealBytes(key, subject, header, encode(payload))
}

/** For a payload that is serialized already. */
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

/** Signs a message again that was sealed with another key. */
export function signAgain(key: Key, subject: string, message: Buffer): void {
  sign(key, subject, message).copy(message, macStart)
}

/**
 * Throws `RefusedMessageError` or `VersionMismatchError`. Version and signature stand at the same
 * place in all versions, and announcements have a name.
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
  try {
    return {
      epoch: message.readDoubleLE(headerStart),
      number: message.readDoubleLE(headerStart + 8),
      acknowledged: message.readDoubleLE(headerStart + 16),
      payload: decode(message.subarray(payloadStart)),
    }
  } catch {
    throw new RefusedMessageError('it cannot be decoded')
  }
}

/**
 * Where a message stands among those of its sender, of which nothing is known but that it sends
 * messages as this version does; `null` for other bytes. For those with another token.
 */
export function readHeader(data: Uint8Array): Pick<Header, 'epoch' | 'number'> | null {
  const message = Buffer.from(data.buffer, data.byteOffset, data.byteLength)
  if (message.length < payloadStart || message[0] !== protocolVersion) return null
  const epoch = message.readDoubleLE(headerStart)
  const number = message.readDoubleLE(headerStart + 8)
  return epoch > 0 && Number.isSafeInteger(number) && number > 0 ? { epoch, number } : null
}

/** Whether this is the answer to the request of this number, by someone with the token. */
export function isAnswerTo(nonce: number, key: Key, subject: string, answer: Uint8Array): boolean {
  try {
    return open(key, subject, answer).epoch === nonce
  } catch {
    return false
  }
}

/** Of a message of another version, whose signature is right. */
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
