/**
 * Which process is the driver of a session: one at a time. A later start supersedes it, and asks
 * the agents that the earlier one has used.
 */

import { randomUUID } from 'node:crypto'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { type Broker, NoResponderError } from '../broker/broker.ts'
import type { Keys } from '../wire/envelope.ts'
import { type Challenged, silenceMs } from '../wire/messages.ts'
import { answerAsOwner, askOwner } from '../wire/owner-question.ts'
import {
  ownerOfStream,
  type SessionSubjects,
  type SessionUse,
  streamPrefix,
} from '../wire/subjects.ts'
import type { AgentDirectory } from './directory/agent-directory.ts'

/** All uses of a session belong to one process. */
const processId = randomUUID()

/** Rejects with `SessionInUseError` when a living process answers for the session. */
async function expectNoOwner(
  broker: Broker,
  subjects: SessionSubjects,
  cluster: Keys,
  { sessionId }: SessionUse,
): Promise<void> {
  // A driver that is stopped does not answer, and is superseded.
  const [ofUse, ofSession] = await Promise.all(
    [subjects.owner, subjects.sessionOwner].map((subject) =>
      askOwner(broker, subject, cluster, silenceMs),
    ),
  )
  const isOwn = ofSession?.owner?.process === processId
  const owner = ofUse?.owner ?? (isOwn ? null : ofSession?.owner)
  if (owner === null || owner === undefined) return
  throw new BackendError(
    `session "${sessionId}" is in use by another process, on backend "${owner.backend}"`,
    {
      code: 'SessionInUseError',
      hint: 'Give this session another id, or wait until the other process has ended.',
    },
  )
}

/**
 * Answers from now on that this process has the session. Rejects with `SessionInUseError` when
 * another one does. Returns the end of the subscriptions.
 */
export async function becomeOwner(
  broker: Broker,
  subjects: SessionSubjects,
  cluster: Keys,
  use: SessionUse,
): Promise<readonly (() => void)[]> {
  await expectNoOwner(broker, subjects, cluster, use)
  const answer = answerAsOwner(cluster, { process: processId, backend: use.backend })
  const { owner, sessionOwner } = subjects
  return [owner, sessionOwner].map((subject) => broker.subscribe(subject, answer))
}

/**
 * The latest start of the session that an agent has attached to; 0 if none has. For the owner of
 * the session: the driver of that start is gone or stopped. Notes of it may be gone, too, and its
 * clock may have been ahead.
 */
export async function askLatestStart(directory: AgentDirectory, use: SessionUse): Promise<number> {
  const ask = async (name: string): Promise<number> => {
    try {
      const answer = await directory.request(name, { kind: 'challenge', use }, silenceMs)
      return (answer as Challenged).latestStart ?? 0
    } catch {
      // It is attached to when it answers again.
      return 0
    }
  }
  const starts = await Promise.all(
    directory.agents.map(({ announcement }) => ask(announcement.name)),
  )
  return Math.max(0, ...starts)
}

/**
 * Removes what sessions left whose driver died and did not return: ends are kept for as long as
 * their session said, then their stream is empty. Called by every driver that connects.
 */
export async function removeExpiredSessions(
  broker: Broker,
  cluster: Keys,
  nowSeconds: number,
): Promise<void> {
  const { store } = broker
  for (const { name, messages, usedAt, maxAgeSeconds } of await store.listStreams(streamPrefix)) {
    const isExpired = messages === 0 && nowSeconds - usedAt > maxAgeSeconds
    if (isExpired && !(await isOwned(broker, ownerOfStream(name), cluster))) {
      await store.remove(name)
    }
  }
}

/** How often a driver is asked that does not answer, because it is busy or stopped. */
const mostQuestions = 3

async function isOwned(broker: Broker, owner: string, cluster: Keys): Promise<boolean> {
  for (let asked = 0; asked < mostQuestions; asked++) {
    const { answer } = await askOwner(broker, owner, cluster, silenceMs)
    if (answer === 'signed') return true
  }
  return false
}

const probeMs = 1000
const mostUnanswered = 3
const pauseMs = 250

/** Resolves when the broker has not answered for about 3 s; rejects with the signal's reason. */
export async function untilSilent(
  broker: Broker,
  { owner }: SessionSubjects,
  clock: Clock,
  signal: AbortSignal,
): Promise<void> {
  // Counted, because a time-out also passes while this process is stopped.
  for (let unanswered = 0; unanswered < mostUnanswered;) {
    try {
      await broker.request(owner, new Uint8Array(), probeMs)
      unanswered = 0
    } catch (error) {
      unanswered = error instanceof NoResponderError ? 0 : unanswered + 1
    }
    if (unanswered === 0) await sleep(clock, pauseMs, { signal })
  }
}
