/**
 * Ensures that a session has only one driver process at a time. A later one replaces an earlier one
 * that no longer answers.
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
import { deriveKeys, type Keys, newDriverEpoch, emptyHeader, seal } from '../wire/envelope.ts'
import { maxSilenceMs } from '../wire/messages.ts'
import {
  createOwnerResponder,
  requestOwner,
  type OwnerReply,
  processId,
} from '../wire/owner-request.ts'
import {
  toOwnerSubject,
  type SessionSubjects,
  type SessionUse,
  streamPrefix,
} from '../wire/subjects.ts'
import type { AgentDirectory } from './agent-directory.ts'
import { requestLatestStart, type NotedAgents, emptyNotes, readNotedAgents } from './used-agents.ts'

const retryDelayMs = 500

/** The maximum number of requests to a driver that does not answer. It may be busy or suspended. */
const maxRequests = 3

/** Asks again if a subscriber does not answer, because it may be busy. */
async function requestOwnerRepeatedly(
  broker: Broker,
  subject: string,
  cluster: Keys,
  requests = maxRequests,
): Promise<OwnerReply> {
  for (let asked = 1; ; asked++) {
    const reply = await requestOwner(broker, subject, cluster, maxSilenceMs)
    if (reply.owner !== null || reply.answer === 'nobody' || asked === requests) return reply
  }
}

async function expectNoOwner(options: OwnershipOptions, lastClaim: number): Promise<void> {
  const { broker, subjects, cluster, use } = options
  // A suspended driver does not answer and is replaced. If nobody has claimed the session, one
  // request is enough.
  const requests = lastClaim === 0 ? 1 : maxRequests
  const [useReply, sessionReply] = await Promise.all(
    [subjects.owner, subjects.sessionOwner].map((subject) =>
      requestOwnerRepeatedly(broker, subject, cluster, requests),
    ),
  )
  const isOwn = sessionReply?.owner?.process === processId
  const owner = useReply?.owner ?? (isOwn ? null : sessionReply?.owner)
  if (owner === null || owner === undefined) return
  throw new BackendError(
    `session "${use.sessionId}" is in use by another process, on backend "${owner.backend}"`,
    {
      code: 'SessionInUseError',
      hint: 'Give this session another id, or wait until the other process has ended.',
    },
  )
}

export interface ClaimOptions extends Omit<OwnershipOptions, 'cluster' | 'onFull'> {
  readonly directory: AgentDirectory
  readonly listener: BackendListener
  readonly token: string
  readonly hasWaiting: () => boolean
}

export interface ClaimedSession extends Ownership {
  /** The driver's epoch. It is higher than all earlier epochs of the session. */
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
    const noted = isNew ? emptyNotes : await readNotedAgents(broker, subjects, keys)
    const names = directory.agents.map(({ announcement }) => announcement.name)
    const latestStart = Math.max(
      noted.latestEpoch,
      // Asks agents, too: the notes of the earlier driver may be lost, and its clock may have been
      // ahead.
      await requestLatestStart(directory, names, { use }),
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
  readonly cluster: Keys
  readonly use: SessionUse
  readonly clock: Clock
  readonly isOpen: () => boolean
  /** Called when the broker's store is full. Claiming is retried until there is room. */
  readonly onFull: (error: StoreFullError) => void
}

export interface Ownership {
  readonly isNew: boolean
  /** The run of the stream. An earlier run continues if its stream exists. */
  readonly run: string
  readonly stop: () => void
}

/**
 * Makes this process the driver, which answers ownership requests. Rejects with `SessionInUseError`
 * if another process is the driver. Of several concurrent starts, one succeeds.
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
      const stop = await writeClaim(options, last)
      if (stop !== null) return { isNew: isCreated && last === 0, run: opened.label, stop }
      // In the meantime, another process claimed the session or the stream was replaced. Asks
      // again.
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
  return (await poll({ delayMs: retryDelayMs }, attempt, { clock })) as Ownership
}

/**
 * Claims the session and answers ownership requests. Returns a function that stops the answers, or
 * `null` if another process claimed the session first.
 */
async function writeClaim(
  { broker, subjects, cluster, use }: OwnershipOptions,
  last: number,
): Promise<(() => void) | null> {
  const owner = { process: processId, backend: use.backend }
  const respond = createOwnerResponder(cluster, owner)
  const claimed = Promise.withResolvers<boolean>()
  // Subscribes before the claim is written, and answers requests after it is written.
  const answerClaimed = (message: BrokerMessage): void => {
    claimed.promise
      .then((isOwner) => (isOwner ? respond(message) : undefined))
      .catch(() => {
        // The connection is closed.
      })
  }
  const unsubscribes = [subjects.owner, subjects.sessionOwner].map((subject) =>
    broker.subscribe(subject, answerClaimed),
  )
  const stop = (): void => {
    for (const unsubscribe of unsubscribes) unsubscribe()
  }
  let isOwner = false
  try {
    const data = seal(cluster.toDriver, subjects.claim, emptyHeader, owner)
    isOwner = await broker.store.appendAfter(subjects.claim, data, last)
  } finally {
    claimed.resolve(isOwner)
    if (!isOwner) stop()
  }
  return isOwner ? stop : null
}

/** Removes streams whose driver died, and whose messages have all expired. */
export async function removeExpiredSessions(
  broker: Broker,
  cluster: Keys,
  nowSeconds: number,
): Promise<void> {
  const { store } = broker
  for (const { name, messages, usedAt, maxAgeSeconds } of await store.listStreams(streamPrefix)) {
    if (messages > 0 || nowSeconds - usedAt <= maxAgeSeconds) continue
    const { answer } = await requestOwnerRepeatedly(broker, toOwnerSubject(name), cluster)
    if (answer !== 'signed') await store.remove(name)
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
