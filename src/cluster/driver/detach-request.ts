/** The last request of a session to an agent: to end everything of the session. */

import type { Clock } from '../../foundation/clock.ts'
import type { Log } from '../../foundation/log.ts'
import { retry } from '../../runtime/retry.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import { expectMessage } from '../wire/message-forms.ts'
import { type Detached, silenceMs } from '../wire/messages.ts'
import type { SessionUse } from '../wire/subjects.ts'
import type { AgentDirectory } from './directory/agent-directory.ts'

export interface DetachOptions {
  readonly use: SessionUse
  readonly run: () => string
  /** The driver's epoch. */
  readonly epoch: () => number
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly clock: Clock
  readonly log: Log
  readonly ownerTtlSeconds: number
}

const answerMs = 5000
const retryMs = 200
const reconnected = new Error('the connection was down')

/**
 * Resolves when the agent holds nothing of the session; with `null` if it does not answer. Sent
 * again after a reconnect. `isUsed`: whether this start of the driver uses the agent.
 */
export async function detachFrom(
  name: string,
  reason: string,
  isUsed: boolean,
  options: DetachOptions,
): Promise<Detached | null> {
  const { directory, use, run, epoch, broker, clock, log, ownerTtlSeconds } = options
  const request = { kind: 'detach', ...use, run: run(), epoch: epoch(), reason } as const
  const ask = async (): Promise<Detached> => {
    const answer = directory.request(name, request, answerMs)
    return expectMessage(await unlessReconnected(broker, answer), 'detached')
  }
  let comesUntilMs = 0
  const mayRetry = (error: unknown): boolean => {
    const nowMs = clock.monotonicMs()
    // The request was lost with the connection; the agent may reconnect a little later.
    if (error === reconnected) comesUntilMs = nowMs + silenceMs
    return error === reconnected || (error instanceof NoResponderError && nowMs < comesUntilMs)
  }
  try {
    return await retry({ delayMs: retryMs }, ask, { clock, mayRetry })
  } catch (error) {
    // Warns only of agents of an earlier start: the session knows those that this start uses.
    if (error instanceof NoResponderError || isUsed) return null
    const left = `tasks of session "${use.sessionId}" there end after ${ownerTtlSeconds} s`
    log.warn('AgentNotDetached', `agent "${name}" does not answer; ${left}`)
    return null
  }
}

/** Rejects with `reconnected` if the connection is restored before the answer arrives. */
async function unlessReconnected<Result>(broker: Broker, answer: Promise<Result>): Promise<Result> {
  const back = Promise.withResolvers<never>()
  const stop = broker.onConnection((isConnected) => {
    if (isConnected) back.reject(reconnected)
  })
  try {
    return await Promise.race([answer, back.promise])
  } finally {
    stop()
    answer.catch(() => {})
  }
}
