/** Asks which driver owns a session. Only answers signed with the cluster's key count. */

import { randomUUID } from 'node:crypto'
import { type Broker, type BrokerMessage, NoResponderError } from '../broker/broker.ts'
import { isAnswerTo, type Keys, newNonce, emptyHeader, open, seal } from './envelope.ts'

/** Identifies this process. All backends of a session belong to one process. */
export const processId = randomUUID()

export interface Owner {
  /** The `processId` of the driver's process. */
  readonly process: string
  readonly backend: string
}

/**
 * The owner that has signed its answer. `forged`: only unsigned answers arrived. `silent`: a
 * subscriber did not answer in time, such as a suspended driver. `nobody`: there is no subscriber.
 */
export type OwnerAnswer = Owner | 'forged' | 'silent' | 'nobody'

/** Ignores owners for which `isRelevant` is `false`. Rejects if the broker cannot be reached. */
export async function requestOwner(
  broker: Broker,
  owner: string,
  { toDriver }: Keys,
  timeoutMs: number,
  isRelevant: (owner: Owner) => boolean = () => true,
): Promise<OwnerAnswer> {
  const nonce = newNonce()
  const request = Buffer.alloc(8)
  request.writeDoubleLE(nonce)
  let isForged = false
  const isAccepted = (answer: Uint8Array): boolean => {
    const isSigned = isAnswerTo(nonce, toDriver, owner, answer)
    isForged ||= !isSigned
    return isSigned && isRelevant(open(toDriver, owner, answer).payload as Owner)
  }
  try {
    const answer = await broker.requestAccepted(owner, request, timeoutMs, isAccepted)
    return open(toDriver, owner, answer).payload as Owner
  } catch (error) {
    if (error instanceof NoResponderError) return 'nobody'
    if (!broker.isConnected) throw error
    return isForged ? 'forged' : 'silent'
  }
}

/** Whether a driver has answered. */
export const isOwner = (answer: OwnerAnswer): answer is Owner => typeof answer === 'object'

/** Answers with the nonce of the request, which proves that the answer is not a replay. */
export const createOwnerResponder =
  ({ toDriver }: Keys, owner: Owner) =>
  (message: BrokerMessage): void => {
    const { subject } = message
    const request = Buffer.from(message.data)
    const scope = request.length === 8 ? request.readDoubleLE() : 0
    message.respond(seal(toDriver, subject, { ...emptyHeader, scope }, owner))
  }
