/**
 * Asks which driver owns a session. Any client may answer, so only answers signed with the key of
 * the cluster count. That key does not depend on the session's id.
 */

import { randomUUID } from 'node:crypto'
import { type Broker, type BrokerMessage, NoResponderError } from '../broker/broker.ts'
import { isAnswerTo, type Keys, newNonce, noHeader, open, seal } from './envelope.ts'

/**
 * `signed`: a live process owns the session. `forged`: only answers without the key arrived.
 * `silent`: a subscriber exists, but did not answer in time, such as a suspended driver.
 */
export type OwnerAnswer = 'signed' | 'forged' | 'silent' | 'nobody'

/** Identifies this process, because all uses of a session belong to one process. */
export const processId = randomUUID()

/** A driver, as its answer describes it. */
export interface Owner {
  /** The `processId` of the driver. */
  readonly process: string
  readonly backend: string
}

export interface OwnerReply {
  readonly answer: OwnerAnswer
  /** The driver that signed the answer; `null` if there is none. */
  readonly owner: Owner | null
}

/** Rejects when the broker cannot be reached. Ignores owners for which `counts` returns false. */
export async function askOwner(
  broker: Broker,
  owner: string,
  { toDriver }: Keys,
  timeoutMs: number,
  counts: (owner: Owner) => boolean = () => true,
): Promise<OwnerReply> {
  const nonce = newNonce()
  const request = Buffer.alloc(8)
  request.writeDoubleLE(nonce)
  let isForged = false
  const isOwner = (answer: Uint8Array): boolean => {
    const isSigned = isAnswerTo(nonce, toDriver, owner, answer)
    isForged ||= !isSigned
    return isSigned && counts(open(toDriver, owner, answer).payload as Owner)
  }
  try {
    const answer = await broker.requestAccepted(owner, request, timeoutMs, isOwner)
    return { answer: 'signed', owner: open(toDriver, owner, answer).payload as Owner }
  } catch (error) {
    if (error instanceof NoResponderError) return { answer: 'nobody', owner: null }
    if (!broker.isConnected) throw error
    return { answer: isForged ? 'forged' : 'silent', owner: null }
  }
}

/** Answers each request. The nonce in the answer proves that it is not a replay. */
export const answerAsOwner =
  ({ toDriver }: Keys, owner: Owner) =>
  (message: BrokerMessage): void => {
    const { subject } = message
    const request = Buffer.from(message.data)
    const epoch = request.length === 8 ? request.readDoubleLE() : 0
    message.respond(seal(toDriver, subject, { ...noHeader, epoch }, owner))
  }
