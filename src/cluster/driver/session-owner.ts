/**
 * Ensures that a session has one driver process at a time. A later start replaces an earlier one,
 * and contacts the agents that the earlier one used.
 */

import { type BackendListener, toEventNotice } from '../../backends/backend.ts'
import { BackendThrottled } from '../../events/library-events.ts'
import type { Clock } from '../../foundation/clock.ts'
import { BackendError } from '../../foundation/errors.ts'
import { poll } from '../../runtime/retry.ts'
import {
  type Broker,
  type BrokerMessage,
  NoResponderError,
  StoreFullError,
} from '../broker/broker.ts'
import type { SessionStream } from '../broker/session-stream.ts'
import { deriveKeys, type Keys, newDriverEpoch, noHeader, seal } from '../wire/envelope.ts'
import { silenceMs } from '../wire/messages.ts'
import { answerAsOwner, askOwner, type OwnerReply, processId } from '../wire/owner-request.ts'
import {
  ownerOfStream,
  type SessionSubjects,
  type SessionUse,
  streamPrefix,
} from '../wire/subjects.ts'
import type { AgentDirectory } from './directory/agent-directory.ts'
import { askLatestStart, type NotedAgents, nothingNoted, readNotedAgents } from './used-agents.ts'

const retryMs = 500

/**
 * The maximum number of requests to a driver that does not answer because it is busy or suspended.
 */
const maxRequests = 3

/** Repeats the request while a subscriber exists but no driver answers, because it may be busy. */
async function askOften(
  broker: Broker,
  subject: string,
  cluster: Keys,
  requests = maxRequests,
): Promise<OwnerReply> {
  for (let asked = 1; ; asked++) {
    const reply = await askOwner(broker, subject, cluster, silenceMs)
    if (reply.owner !== null || reply.answer === 'nobody' || asked === requests) return reply
  }
}

/** Rejects with `SessionInUseError` when a live process answers for the session. */
async function expectNoOwner(options: OwnershipOptions, lastClaim: number): Promise<void> {
  const { broker, subjects, cluster, use } = options
  // A suspended driver does not answer, and is replaced. If the session was never claimed, a client
  // that subscribes to everything must not delay the start.
  const requests = lastClaim === 0 ? 1 : maxRequests
  const [ofUse, ofSession] = await Promise.all(
    [subjects.owner, subjects.sessionOwner].map((subject) =>
      askOften(broker, subject, cluster, requests),
    ),
  )
  const isOwn = ofSession?.owner?.process === processId
  const owner = ofUse?.owner ?? (isOwn ? null : ofSession?.owner)
  if (owner === null || owner === undefined) return
  throw new BackendError(
    `session "${use.sessionId}" is in use by another process, on backend "${owner.backend}"`,
    {
      code: 'SessionInUseError',
      hint: 'Give this session another id, or wait until the other process has ended.',
    },
  )
}

export interface ClaimOptions {
  readonly broker: Broker
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly stream: SessionStream
  readonly subjects: SessionSubjects
  readonly token: string
  readonly use: SessionUse
  readonly clock: Clock
  /** Whether the session is still needed. */
  readonly isOpen: () => boolean
  /** Whether tasks wait for the session. */
  readonly hasWaiting: () => boolean
}

/** A session whose driver is this process. */
export interface ClaimedSession extends Ownership {
  /** The driver's epoch, which is higher than all earlier ones of the session. */
  readonly epoch: number
  readonly keys: Keys
  readonly noted: NotedAgents
}

/** Makes this process the driver of the session, and reads the notes of earlier starts. */
export async function claimSession(options: ClaimOptions): Promise<ClaimedSession> {
  const { broker, subjects, directory, use, clock, token, listener, hasWaiting } = options
  let isReported = false
  const ownership = await becomeOwner({
    ...options,
    cluster: deriveKeys(token, null),
    onFull({ message }) {
      if (isReported || !hasWaiting()) return
      isReported = true
      const reason = `the store of the broker is full: ${message}`
      listener.notice(toEventNotice(BackendThrottled, { reason, limit: 0 }))
    },
  })
  try {
    const { isNew, run } = ownership
    const keys = deriveKeys(token, { ...use, run })
    const noted = isNew ? nothingNoted : await readNotedAgents(broker, subjects, keys)
    const names = directory.agents.map(({ announcement }) => announcement.name)
    const latestStart = Math.max(
      noted.latestEpoch,
      // The earlier driver is gone or suspended. Its notes may be gone as well, and its clock may
      // have been ahead.
      await askLatestStart(directory, names, { use }),
    )
    return { ...ownership, keys, noted, epoch: newDriverEpoch(clock, latestStart) }
  } catch (error) {
    ownership.stop()
    throw error
  }
}

export interface OwnershipOptions {
  readonly broker: Broker
  readonly stream: SessionStream
  readonly subjects: SessionSubjects
  /** The cluster's keys, with which a driver proves that it owns the session. */
  readonly cluster: Keys
  readonly use: SessionUse
  readonly clock: Clock
  /** Whether the session is still needed. */
  readonly isOpen: () => boolean
  /** Called when the broker's store is full. Claiming is retried until there is room. */
  readonly onFull: (error: StoreFullError) => void
}

export interface Ownership {
  /** Whether the session was never used before. */
  readonly isNew: boolean
  /** The run of the stream. It continues if the session was used before. */
  readonly run: string
  /** Stops answering ownership requests. */
  readonly stop: () => void
}

/**
 * Makes this process the driver of the session, which answers ownership requests from now on.
 * Rejects with `SessionInUseError` if another process is the driver. If several start at the same
 * time, one succeeds, because each must append after the last claim that existed before it asked.
 */
export async function becomeOwner(options: OwnershipOptions): Promise<Ownership> {
  const { broker, stream, subjects, clock, isOpen, onFull } = options
  let isCreated = false
  const attempt = async (): Promise<Ownership | undefined> => {
    const last = await broker.store.lastSequence(subjects.stream, subjects.claim)
    await expectNoOwner(options, last)
    const opened = await stream.open()
    if (opened === null) throw new Error('it was closed')
    if (opened.isCreated) isCreated = true
    try {
      const stop = await claim(options, last)
      if (stop !== null) return { isNew: isCreated && last === 0, run: opened.label, stop }
      // Another process has claimed the session meanwhile, or the stream was replaced: ask again.
      return undefined
    } catch (error) {
      if (!(error instanceof StoreFullError)) throw error
      if (!isOpen()) {
        if (isCreated && last === 0) await broker.store.remove(subjects.stream)
        throw error
      }
      onFull(error)
      return undefined
    }
  }
  return (await poll({ delayMs: retryMs }, attempt, { clock })) as Ownership
}

/** Returns a function that stops the answers; `null` if another claim was written meanwhile. */
async function claim(
  { broker, subjects, cluster, use }: OwnershipOptions,
  last: number,
): Promise<(() => void) | null> {
  const owner = { process: processId, backend: use.backend }
  const answer = answerAsOwner(cluster, owner)
  const claimed = Promise.withResolvers<boolean>()
  // Subscribes before writing the claim, and answers once the claim is written.
  const answerClaimed = (message: BrokerMessage): void => {
    claimed.promise
      .then((isOwner) => (isOwner ? answer(message) : undefined))
      .catch(() => {
        // The connection is closed.
      })
  }
  const ends = [subjects.owner, subjects.sessionOwner].map((subject) =>
    broker.subscribe(subject, answerClaimed),
  )
  const stop = (): void => {
    for (const end of ends) end()
  }
  let isOwner = false
  try {
    const data = seal(cluster.toDriver, subjects.claim, noHeader, owner)
    isOwner = await broker.store.appendAfter(subjects.claim, data, last)
  } finally {
    claimed.resolve(isOwner)
    if (!isOwner) stop()
  }
  return isOwner ? stop : null
}

/**
 * Removes streams of sessions whose driver died and did not return. Such a stream is empty once its
 * messages have expired. Called by every driver that connects.
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

const isOwned = async (broker: Broker, owner: string, cluster: Keys): Promise<boolean> =>
  (await askOften(broker, owner, cluster)).answer === 'signed'

const probeMs = 1000
const maxUnanswered = 3
const pauseMs = 250

/**
 * Resolves with `true` after the broker has not answered for about 3 s, with `false` if aborted.
 */
export async function untilSilent(
  broker: Broker,
  { owner }: SessionSubjects,
  clock: Clock,
  signal: AbortSignal,
): Promise<boolean> {
  // Counts requests, because timeouts also elapse while this process is suspended.
  let unanswered = 0
  const isSilent = async (): Promise<boolean> => {
    try {
      await broker.request(owner, new Uint8Array(), probeMs)
      unanswered = 0
    } catch (error) {
      unanswered = error instanceof NoResponderError ? 0 : unanswered + 1
    }
    return unanswered === maxUnanswered && !signal.aborted
  }
  return (await poll({ delayMs: pauseMs }, isSilent, { clock, signal })) === true
}
