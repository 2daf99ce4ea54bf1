/**
 * Asks who is the driver of a session. Anybody may answer: only an answer counts that is signed
 * with the key of the cluster, which does not need the session's id.
 */

import { randomUUID } from 'node:crypto'
import { type Broker, type BrokerMessage, NoResponderError } from '../broker/broker.ts'
import { isAnswerTo, type Keys, newNonce, noHeader, open, seal } from './envelope.ts'

/**
 * `signed`: a living process answers for it. `forged`: there were only answers without the key.
 * `silent`: somebody listens and did not answer in time, such as a driver that is stopped.
 */
export type OwnerAnswer = 'signed' | 'forged' | 'silent' | 'nobody'

/** Names this process: all uses of a session belong to one. */
export const processId = randomUUID()

/** A driver as it answers. */
export interface Owner {
  /** Names its process. */
  readonly process: string
  /** The backend's name. */
  readonly backend: string
}

export interface OwnerReply {
  readonly answer: OwnerAnswer
  /** Who has signed; `null` if nobody has. */
  readonly owner: Owner | null
}

/** Rejects when the broker cannot be reached. Answers of those that do not count are ignored. */
export async function askOwner(
  broker: Broker,
  owner: string,
  { toDriver }: Keys,
  timeoutMs: number,
  counts: (owner: Owner) => boolean = () => true,
): Promise<OwnerReply> {
  const nonce = newNonce()
  const question = Buffer.alloc(8)
  question.writeDoubleLE(nonce)
  let isForged = false
  const isOwner = (answer: Uint8Array): boolean => {
    const isSigned = isAnswerTo(nonce, toDriver, owner, answer)
    isForged ||= !isSigned
    return isSigned && counts(open(toDriver, owner, answer).payload as Owner)
  }
  try {
    const answer = await broker.requestAccepted(owner, question, timeoutMs, isOwner)
    return { answer: 'signed', owner: open(toDriver, owner, answer).payload as Owner }
  } catch (error) {
    if (error instanceof NoResponderError) return { answer: 'nobody', owner: null }
    if (!broker.isConnected) throw error
    return { answer: isForged ? 'forged' : 'silent', owner: null }
  }
}

/** Answers whoever asks; the number of the question shows that the answer is not an older one. */
export const answerAsOwner =
  ({ toDriver }: Keys, owner: Owner) =>
  (message: BrokerMessage): void => {
    const { subject } = message
    const question = Buffer.from(message.data)
    const epoch = question.length === 8 ? question.readDoubleLE() : 0
    message.respond(seal(toDriver, subject, { ...noHeader, epoch }, owner))
  }
