/** Ends a driver's session: lets agents end their parts, and notices a silent broker. */

import type { Clock } from '../../../foundation/clock.ts'
import { poll, retry } from '../../../runtime/retry.ts'
import { type Broker, NoResponderError } from '../../broker/broker.ts'
import { type Detached, expectMessage, maxSilenceMs } from '../../wire/messages.ts'
import type { SessionSubjects, SessionUse } from '../../wire/subjects.ts'
import type { AgentDirectory } from './agent-directory.ts'

export interface DetachOptions {
  readonly directory: AgentDirectory
  readonly use: SessionUse
  readonly run: string
  readonly driverStart: number
  readonly broker: Broker
  readonly clock: Clock
}

/**
 * Stops using agents. Resolves when they hold no jobs of the session anymore or do not answer, with
 * `false` if a later start of the driver uses one of them.
 */
export async function detachAgents(
  names: readonly string[],
  reason: string,
  options: DetachOptions,
): Promise<boolean> {
  const answers = await Promise.all(names.map((name) => detachAgent(name, reason, options)))
  return !answers.some((answer) => answer?.isSuperseded)
}

const answerTimeoutMs = 5000
const retryDelayMs = 200
const reconnectedError = new Error('the connection was down')

/**
 * Resolves when the agent holds no jobs of the session, or with `null` if it does not answer.
 * Repeats the request after a reconnect.
 */
async function detachAgent(
  name: string,
  reason: string,
  options: DetachOptions,
): Promise<Detached | null> {
  const { directory, use, run, driverStart, broker, clock } = options
  const request = { kind: 'detach', ...use, run, driverStart, reason } as const
  const ask = async (): Promise<Detached> => {
    const answer = directory.request(name, request, answerTimeoutMs)
    return expectMessage(await rejectOnReconnect(broker, answer), 'detached')
  }
  let mayReturnUntilMs = 0
  const mayRetry = (error: unknown): boolean => {
    const nowMs = clock.monotonicMs()
    // The request was lost with the connection. The agent may reconnect a little later.
    if (error === reconnectedError) mayReturnUntilMs = nowMs + maxSilenceMs
    return (
      error === reconnectedError || (error instanceof NoResponderError && nowMs < mayReturnUntilMs)
    )
  }
  try {
    return await retry({ delayMs: retryDelayMs }, ask, { clock, mayRetry })
  } catch {
    // The session reports the loss of an agent that does not answer.
    return null
  }
}

async function rejectOnReconnect<Result>(broker: Broker, answer: Promise<Result>): Promise<Result> {
  const reconnected = Promise.withResolvers<never>()
  const stop = broker.onConnection((isConnected) => {
    if (isConnected) reconnected.reject(reconnectedError)
  })
  try {
    return await Promise.race([answer, reconnected.promise])
  } finally {
    stop()
    answer.catch(() => {})
  }
}

const probeTimeoutMs = 1000
const maxUnanswered = 3
const probeIntervalMs = 250

/** Resolves with `true` if the broker does not answer for about 3 s, with `false` if aborted. */
export async function waitUntilSilent(
  broker: Broker,
  { owner }: SessionSubjects,
  clock: Clock,
  signal: AbortSignal,
): Promise<boolean> {
  // Counts requests instead of time, because timeouts also elapse while this process is suspended.
  let unanswered = 0
  const isSilent = async (): Promise<boolean> => {
    try {
      await broker.request(owner, new Uint8Array(), probeTimeoutMs)
      unanswered = 0
    } catch (error) {
      unanswered = error instanceof NoResponderError ? 0 : unanswered + 1
    }
    return unanswered === maxUnanswered && !signal.aborted
  }
  return (await poll({ delayMs: probeIntervalMs }, isSilent, { clock, signal })) === true
}
