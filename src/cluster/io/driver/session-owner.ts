/**
 * Ensures that a session has only one driver process at a time. A later one replaces an earlier one
 * that no longer answers.
 */

import type { Clock } from '../../../foundation/clock.ts'
import { BackendError } from '../../../foundation/errors.ts'
import { poll } from '../../../runtime/retry.ts'
import {
  type Broker,
  type BrokerMessage,
  type OpenedStream,
  StoreFullError,
} from '../../broker/broker.ts'
import type { SessionStream } from '../../broker/session-stream.ts'
import { type Keys, newDriverStart, emptyHeader, seal } from '../../wire/envelope.ts'
import { expectMessage, maxSilenceMs, type Message } from '../../wire/messages.ts'
import {
  createOwnerResponder,
  isOwner,
  type Owner,
  type OwnerAnswer,
  processId,
  requestOwner,
} from '../../wire/owner-request.ts'
import {
  newRunId,
  toOwnerSubject,
  type SessionSubjects,
  type SessionUse,
  streamPrefix,
} from '../../wire/subjects.ts'
import type { AgentDirectory, KnownAgent } from './agent-directory.ts'

const retryDelayMs = 500

/** The maximum number of requests to a driver that does not answer. It may be busy or suspended. */
const maxRequests = 3

/** Asks again if a subscriber does not answer, because it may be busy. */
async function requestOwnerRepeatedly(
  broker: Broker,
  subject: string,
  cluster: Keys,
  requests = maxRequests,
): Promise<OwnerAnswer> {
  for (let asked = 1; ; asked++) {
    const answer = await requestOwner(broker, subject, cluster, maxSilenceMs)
    if (isOwner(answer) || answer === 'nobody' || asked === requests) return answer
  }
}

async function expectNoOwner(options: OwnershipOptions, lastClaim: number): Promise<void> {
  const { broker, subjects, cluster, use } = options
  // A suspended driver does not answer and is replaced. If nobody has claimed the session, one
  // request is enough.
  const requests = lastClaim === 0 ? 1 : maxRequests
  const ask = (subject: string): Promise<OwnerAnswer> =>
    requestOwnerRepeatedly(broker, subject, cluster, requests)
  const [ofUse, ofSession] = await Promise.all([ask(subjects.owner), ask(subjects.sessionOwner)])
  // Other backends of this process may be in use by the session.
  const isOther = isOwner(ofSession) && ofSession.process !== processId
  const owner = isOwner(ofUse) ? ofUse : isOther ? ofSession : null
  if (owner === null) return
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
  readonly stream: SessionStream
  readonly subjects: SessionSubjects
  readonly directory: AgentDirectory
  readonly use: SessionUse
  /** The keys of the cluster. */
  readonly cluster: Keys
  readonly clock: Clock
  /** Whether this driver continues a run whose record it has. Otherwise it begins a new one. */
  readonly isReturning: boolean
  readonly isOpen: () => boolean
  /** Called when the broker's store is full. Claiming is repeated until there is room. */
  readonly onFull: (error: StoreFullError) => void
  /** Called with the run before its stream is opened. */
  readonly onRun: (run: string) => void
}

export interface ClaimedSession {
  readonly run: string
  /** The start of this driver. It is higher than all earlier ones that are known. */
  readonly driverStart: number
  /** When the session's stream was created. A later stream lacks what this one has. */
  readonly streamCreated: string
  /** Stops answering ownership requests. */
  readonly stop: () => void
}

interface OwnershipOptions extends ClaimOptions {
  /** This process. */
  readonly self: Owner
}

/**
 * Makes this process the driver of the session, which answers ownership requests. Rejects with
 * `SessionInUseError` if another process is the driver. Of several concurrent starts, one succeeds.
 */
export async function claimSession(given: ClaimOptions): Promise<ClaimedSession> {
  const { clock, isReturning, onRun, use } = given
  const self = { process: processId, backend: use.backend }
  const options = { ...given, self }
  const known = await requestKnownRun(options)
  const newRun = isReturning ? (known.run ?? newRunId()) : newRunId()
  onRun(newRun)
  const claimOnce = async (): Promise<ClaimedSession | undefined> => {
    const owned = await becomeOwner(options)
    if (owned === undefined) return undefined
    try {
      const run = isReturning && known.run === null ? owned.label : newRun
      onRun(run)
      const streamCreated = owned.label === run ? owned.created : await replaceStream(options)
      const driverStart = newDriverStart(clock, known.latestStart)
      return { run, driverStart, streamCreated, stop: owned.stop }
    } catch (error) {
      owned.stop()
      throw error
    }
  }
  return (await poll({ delayMs: retryDelayMs }, claimOnce, { clock })) as ClaimedSession
}

/** What agents know about the session: the run of the latest driver that they have a part of. */
async function requestKnownRun({
  directory,
  use,
}: Pick<ClaimOptions, 'directory' | 'use'>): Promise<{
  readonly run: string | null
  readonly latestStart: number
}> {
  const ask = async ({ announcement: { name } }: KnownAgent): Promise<Message<'challenged'>> => {
    try {
      const answer = await directory.request(name, { kind: 'challenge', use }, maxSilenceMs)
      return expectMessage(answer, 'challenged')
    } catch {
      // An agent that knows a later start refuses the attach request of this driver.
      return { kind: 'challenged', nonce: 0, run: null, latestStart: 0 }
    }
  }
  const answers = await Promise.all(directory.agents.map(ask))
  const latestStart = Math.max(0, ...answers.map((one) => one.latestStart))
  const [latest] = answers
    .filter(({ run }) => run !== null)
    .toSorted((a, b) => b.latestStart - a.latestStart)
  return { run: latest?.run ?? null, latestStart }
}

/**
 * Tries to claim the session. Resolves with `undefined` if another process was faster, or if the
 * store is full.
 */
async function becomeOwner(
  options: OwnershipOptions,
): Promise<(OpenedStream & { readonly stop: () => void }) | undefined> {
  const { broker, stream, subjects, isOpen, onFull } = options
  const last = await broker.store.lastSequence(subjects.stream, subjects.claim)
  await expectNoOwner(options, last)
  const opened = await stream.open()
  if (opened === null) throw new Error('it was closed')
  try {
    const stop = await writeClaim(options, last)
    return stop === null ? undefined : { ...opened, stop }
  } catch (error) {
    if (!(error instanceof StoreFullError)) throw error
    if (!isOpen()) {
      if (stream.wasCreated && last === 0) await broker.store.remove(subjects.stream)
      throw error
    }
    onFull(error)
    return undefined
  }
}

/**
 * Replaces the stream of another run, in which this process has claimed the session. Resolves with
 * the time at which the new stream was created.
 */
async function replaceStream(options: OwnershipOptions): Promise<string> {
  const { broker, stream, subjects } = options
  await broker.store.remove(subjects.stream)
  const opened = await stream.open()
  await appendClaim(options, 0)
  return opened?.created ?? ''
}

const appendClaim = (
  { broker, subjects, cluster, self }: OwnershipOptions,
  last: number,
): Promise<boolean> => {
  const claim = seal(cluster.toDriver, subjects.claim, emptyHeader, self)
  return broker.store.appendAfter(subjects.claim, claim, last)
}

/**
 * Ensures that there is a stream of the run, after the server was away. There may be none, or
 * another one if an older store was restored. Resolves with the time at which the stream was
 * created, or with `null` if a later driver owns the session or has closed it.
 */
export async function restoreStream(
  options: Pick<ClaimOptions, 'broker' | 'subjects' | 'cluster' | 'stream' | 'directory' | 'use'>,
  { run, driverStart }: { readonly run: string; readonly driverStart: number },
): Promise<string | null> {
  const { broker, subjects, stream, cluster } = options
  const isOther = ({ process }: Owner): boolean => process !== processId
  const answer = await requestOwner(broker, subjects.owner, cluster, maxSilenceMs, isOther)
  if (isOwner(answer)) return null
  const { latestStart } = await requestKnownRun(options)
  if (latestStart > driverStart) return null
  const found = await stream.open()
  if (found === null || found.label === run) return found?.created ?? ''
  await broker.store.remove(subjects.stream)
  return (await stream.open())?.created ?? ''
}

/**
 * Claims the session and answers ownership requests. Returns a function that stops the answers, or
 * `null` if another process claimed the session first.
 */
async function writeClaim(options: OwnershipOptions, last: number): Promise<(() => void) | null> {
  const { broker, subjects, cluster, self } = options
  const respond = createOwnerResponder(cluster, self)
  const claimed = Promise.withResolvers<boolean>()
  // Subscribes before the claim is written, and answers requests after it is written.
  const answerClaimed = (message: BrokerMessage): void => {
    claimed.promise
      .then((hasClaimed) => (hasClaimed ? respond(message) : undefined))
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
  let hasClaimed = false
  try {
    hasClaimed = await appendClaim(options, last)
  } finally {
    claimed.resolve(hasClaimed)
    if (!hasClaimed) stop()
  }
  return hasClaimed ? stop : null
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
    const answer = await requestOwnerRepeatedly(broker, toOwnerSubject(name), cluster)
    if (!isOwner(answer)) await store.remove(name)
  }
}
