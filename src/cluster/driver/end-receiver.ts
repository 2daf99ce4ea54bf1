/** Receives results from agents, directly and from the stream, and processes each result once. */

import type { AttemptFacts } from '../../backends/backend.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '../../foundation/error-record.ts'
import { BackendError, messageOf, WorkerLostError } from '../../foundation/errors.ts'
import type { BrokerStore, StreamPosition } from '../broker/broker.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import { decode } from '../wire/codec.ts'
import { splitUids } from '../wire/columns.ts'
import { namesObject } from '../wire/ends.ts'
import { type Key, open } from '../wire/envelope.ts'
import { expectMessage, isErrorRecord, isOutput } from '../wire/message-forms.ts'
import { unpackCompletions, type WireCompletions } from '../wire/completions.ts'
import {
  agentClosed,
  type EndsMessage,
  type LostAttempt,
  type ReportedEvents,
  type WireEnd,
} from '../wire/messages.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { AgentLink, DriverJob } from './agent-link.ts'
import type { DriverJobs, EndReport } from './jobs/driver-jobs.ts'
import type { EarlierRun } from './earlier/earlier-run.ts'
import { toEnd } from './jobs/job-times.ts'
import { NumberSet } from './number-set.ts'
import type { ReceivedMessage } from './recorded-messages.ts'

interface ReadValue {
  readonly value: unknown
  readonly bytes: number
}

type OutputFacts = Pick<AttemptFacts, 'stdout' | 'stderr'>

/** The time between two requests for a value that the server has lost. */
const askAgainMs = 500
/**
 * The maximum number of requests for a value of an earlier start, which the agent may have dropped.
 */
const maxEarlierAsks = 120

export interface EndReceiverOptions {
  readonly clock: Clock
  /** The key of this run of the session, once the run is known. */
  readonly key: () => Key
  readonly subjects: SessionSubjects
  readonly store: BrokerStore
  /** Values that were too large for a message. */
  readonly objects: StoredObjects
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** The agents in use, by name. */
  readonly agents: ReadonlyMap<string, AgentLink>
  /** Called with the events that an agent sent when it left. */
  readonly onEvents: (agent: AgentLink, report: ReportedEvents) => void
  /** Called when results for an earlier start have arrived. */
  readonly onEarlier: () => void
  readonly onRefused: (reason: string) => void
  readonly onFailed: (error: unknown) => void
  /** Called when an earlier start has read and deleted the large value of this result. */
  readonly onValueLost: (one: DriverJob, end: WireEnd) => void
}

export class EndReceiver {
  readonly #options: EndReceiverOptions
  /** The numbers of received messages, by the `endsEpoch` of the use of an agent. */
  readonly #received = new Map<number, NumberSet>()
  /** Like `#received`, for uses of an earlier start that this driver does not know. */
  readonly #receivedEarlier = new Map<number, NumberSet>()
  /** The position up to which each subject was read. */
  readonly #positions = new Map<string, StreamPosition>()
  /** Subjects of messages that were dropped before it was known whether they count. */
  readonly #dropped = new Set<string>()

  /** Without an earlier start, results of unknown uses are replayed messages of another run. */
  hasEarlierStart = false

  constructor(options: EndReceiverOptions) {
    this.#options = options
  }

  /** Whether this driver has used an agent under this `endsEpoch`. */
  hasUsed(epoch: number): boolean {
    return this.#received.has(epoch)
  }

  /** Starts to accept messages of this use of an agent. */
  use(epoch: number): NumberSet {
    const known = this.#received.get(epoch)
    if (known !== undefined) return known
    const added = this.#receivedEarlier.get(epoch) ?? new NumberSet()
    this.#receivedEarlier.delete(epoch)
    this.#received.set(epoch, added)
    return added
  }

  /** Reads messages of a subject that were stored since the last call. */
  async readStream(subject: string): Promise<void> {
    const { store, subjects } = this.#options
    const { stream, allEnds } = subjects
    const isWhole = this.#dropped.delete(subject)
    const known = this.#positions.get(subject) ?? this.#positions.get(allEnds) ?? null
    const after = isWhole ? null : known
    const { messages, position } = await store.read(stream, subject, after)
    for (const message of messages) this.take(message.subject, message.data)
    this.#positions.set(subject, position)
  }

  /** A message that cannot be handled counts as refused. */
  take(subject: string, data: Uint8Array): void {
    try {
      this.#take(subject, data)
    } catch (error) {
      this.#options.onRefused(messageOf(error))
    }
  }

  #take(subject: string, data: Uint8Array): void {
    const { key, jobs, earlier, agents, onEvents, onEarlier } = this.#options
    const { epoch, number, payload: decoded } = open(key(), subject, data)
    const payload = expectMessage(decoded, 'ends')
    const received = this.#received.get(epoch)
    // Before the answer to its attach arrives, an agent may send results for an earlier start.
    if (received === undefined) {
      if (this.hasEarlierStart) this.#takeEarlier(epoch, number, payload)
      else this.#dropped.add(subject)
      return
    }
    const agent = agents.get(payload.agent)
    if (agent?.isAttached === false) {
      // The agent's answer decides which messages to record, so this one is read again later.
      this.#dropped.add(subject)
      return
    }
    if (!received.add(number)) return
    if (agent?.endsEpoch !== epoch) return this.#dropAll(payload)
    if (agent.isEarlier(number)) {
      if (payload.ends.some(namesObject)) agent.keep(number)
      else agent.settled(number)
      earlier.addEnds(payload, epoch, number)
      return onEarlier()
    }
    jobs.placement.setAhead(agent.name, payload.ahead)
    for (const report of payload.reports ?? []) if (!agent.hasHeard(report)) onEvents(agent, report)
    const take = (): void => this.#takeOwn(agent, number, payload, data.length)
    agent.takeAfter(payload.events, take)
  }

  /** Processes results of jobs that this start has sent. */
  #takeOwn(agent: AgentLink, number: number, payload: EndsMessage, bytes: number): void {
    const { jobs } = this.#options
    const { completions, ends } = payload
    const count = completions.indexes.length + ends.length
    const message = jobs.recorded.expect(agent, number, count)
    this.#takeCompletions(agent, completions, message)
    let isTaken = true
    for (const end of ends) {
      const one = jobs.find(end.index, end.uid, end.attempt)
      if (one?.agent !== agent) this.#takeUnknown(agent, end, message)
      else {
        // A result that refers to an object is alone in its message.
        if (namesObject(end)) isTaken = false
        this.takeEnd(one, end, agent, message)
      }
    }
    if (isTaken) agent.taken(number, bytes)
  }

  #takeCompletions(agent: AgentLink, completions: WireCompletions, message: ReceivedMessage): void {
    const { jobs } = this.#options
    const { indexes, attempts, times, workers, values } = completions
    const uids = splitUids(completions.uids, indexes.length)
    const facts = completions.workerIds.map((workerId) => Object.freeze({ workerId }))
    const now = jobs.readTime()
    for (let row = 0; row < uids.length; row++) {
      const uid = uids[row] ?? ''
      const attempt = attempts?.[row] ?? 1
      const one = jobs.find(indexes[row] ?? -1, uid, attempt)
      const worker = facts[workers?.[row] ?? 0]
      if (worker === undefined) {
        jobs.drop(agent.name, uid, attempt, message)
        continue
      }
      const { workerId } = worker
      const beganMs = times[row * 2] ?? 0
      const atMs = times[row * 2 + 1] ?? 0
      if (one?.agent !== agent) {
        const outcome = { kind: 'complete', value: values?.[row] } as const
        const end = { index: -1, uid, attempt, beganMs, atMs, workerId, facts: null, outcome }
        this.#takeUnknown(agent, end, message)
        continue
      }
      jobs.reportStart(one, agent, { beganMs, atMs, workerId }, now)
      const at = toEnd(one, agent, atMs, now)
      jobs.end(one, { kind: 'complete', at, value: values?.[row], facts: worker }, message)
    }
  }

  /**
   * Processes the result of a job that this start has not sent to the agent: the agent held it for
   * an earlier start, or the attempt was given up while the agent was lost.
   */
  #takeUnknown(agent: AgentLink, end: WireEnd, message: ReceivedMessage): void {
    const { jobs, earlier } = this.#options
    const { number } = message
    if (!earlier.addLateEnd(agent, end, { agent: agent.name, epoch: agent.endsEpoch, number })) {
      jobs.drop(agent.name, end.uid, end.attempt, message)
    } else if (namesObject(end)) agent.keep(number)
    else jobs.recorded.dropped(message)
  }

  #takeEarlier(epoch: number, number: number, payload: EndsMessage): void {
    const received = this.#receivedEarlier.get(epoch) ?? new NumberSet()
    this.#receivedEarlier.set(epoch, received)
    if (received.add(number)) this.#options.earlier.addEnds(payload, epoch, number)
  }

  takeEnd(
    one: DriverJob,
    end: WireEnd,
    agent: AgentLink | null,
    message: ReceivedMessage | null,
  ): void {
    const { jobs, onFailed } = this.#options
    const { beganMs, atMs, workerId, outcome } = end
    if (outcome.kind === 'complete-large') {
      this.#takeLargeEnd(one, end, agent, message).catch(onFailed)
      return
    }
    if (end.outputObject !== undefined || end.errorObject !== undefined) {
      this.#takeStoredParts(one, end, agent, message).catch(onFailed)
      return
    }
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    const facts = end.facts === null ? {} : { facts: end.facts }
    const at = toEnd(one, agent, atMs, now)
    if (outcome.kind === 'complete') {
      jobs.end(one, { kind: 'complete', at, value: outcome.value, ...facts }, message)
    } else if (outcome.kind === 'fail') {
      const error = fromErrorRecord(outcome.error)
      const thrown = outcome.isThrown ? ({ isThrown: true } as const) : {}
      jobs.end(one, { kind: 'fail', at, error, ...thrown, ...facts }, message)
    } else {
      const { cancelReason } = one
      if (cancelReason !== null) {
        jobs.end(one, { kind: 'cancel', at, reason: cancelReason, ...facts }, message)
      } else this.#takeGivenUp(one, agent, outcome.reason, message)
    }
  }

  /** The agent has canceled the attempt itself, because it closed or had lost the driver. */
  #takeGivenUp(
    one: DriverJob,
    agent: AgentLink | null,
    reason: string,
    message: ReceivedMessage | null,
  ): void {
    const { jobs } = this.#options
    if (one.isStarted) {
      if (reason === agentClosed) agent?.abandoned.push(one.uid)
      return jobs.end(one, lostReport(one, agent?.name ?? '', reason), message)
    }
    if (message !== null) jobs.recorded.dropped(message)
    jobs.move([one])
  }

  async #takeLargeEnd(
    one: DriverJob,
    end: WireEnd,
    agent: AgentLink | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    const { jobs, onValueLost } = this.#options
    const { outcome } = end
    if (outcome.kind !== 'complete-large') return
    one.isEnding = true
    const found = await this.#readValue(outcome.object, message, agent === null)
    message?.agent.taken(message.number, found?.bytes ?? 0)
    if (jobs.findOwn(one.job) !== one) return
    if (found !== null) {
      const complete = { kind: 'complete', value: found.value } as const
      return this.takeEnd(one, { ...end, outcome: complete }, agent, message)
    }
    one.isEnding = false
    if (agent === null) {
      if (message !== null) jobs.recorded.dropped(message)
      return onValueLost(one, end)
    }
    const error = new BackendError(`the broker has lost the value of task ${one.uid}`, {
      code: 'ResultLostError',
    })
    const fail = { kind: 'fail', error: toErrorRecord(error), isThrown: false } as const
    this.takeEnd(one, { ...end, outcome: fail }, agent, message)
  }

  /**
   * Reads output or an error that was too large for a message. Without it, the result still counts.
   */
  async #takeStoredParts(
    one: DriverJob,
    { outputObject, errorObject, ...end }: WireEnd,
    agent: AgentLink | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    one.isEnding = true
    const read = async (
      object: string | undefined,
      isValid: (value: unknown) => boolean,
    ): Promise<ReadValue | null> => {
      if (object === undefined) return null
      const found = await this.#readValue(object, message, agent === null)
      return found !== null && isValid(found.value) ? found : null
    }
    const output = await read(outputObject, isOutput)
    const stored = await read(errorObject, isErrorRecord)
    message?.agent.taken(message.number, (output?.bytes ?? 0) + (stored?.bytes ?? 0))
    if (this.#options.jobs.findOwn(one.job) !== one) return
    const facts = output === null ? end.facts : { ...end.facts, ...(output.value as OutputFacts) }
    const isWhole = end.outcome.kind === 'fail' && stored !== null
    const error = stored?.value as ErrorRecord
    const outcome = isWhole ? { ...end.outcome, error } : end.outcome
    this.takeEnd(one, { ...end, facts, outcome }, agent, message)
  }

  /**
   * Returns `null` if the value is lost, or the session has ended. Waits for the broker. If the
   * server has lost the value, waits for the agent, which keeps it until it is confirmed.
   */
  async #readValue(
    object: string,
    message: ReceivedMessage | null,
    isEarlier: boolean,
  ): Promise<ReadValue | null> {
    const { objects, clock, agents } = this.#options
    for (let asks = 0; ; asks++) {
      const data = await objects.take(object).catch(() => null)
      if (data !== null) return { value: decode(data), bytes: data.length }
      const agent = message?.agent ?? null
      const isThere = agent !== null && !agent.isLost && agents.get(agent.name) === agent
      if (message === null || !isThere || objects.closed.aborted) return null
      if (isEarlier && asks === maxEarlierAsks) return null
      agent.askForValue(message.number)
      await sleep(clock, askAgainMs)
    }
  }

  /** Drops results of a lost agent, whose tasks have moved or failed. */
  #dropAll({ agent, completions, ends }: EndsMessage): void {
    const { jobs } = this.#options
    for (const { uid, attempt } of unpackCompletions(completions)) {
      jobs.drop(agent, uid, attempt, null)
    }
    for (const { uid, attempt } of ends) jobs.drop(agent, uid, attempt, null)
  }
}

/** The end of an attempt that was running on a lost node. */
export function lostReport(one: DriverJob, agent: string, reason: string): EndReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const text = one.isStarted
    ? `node ${agent} was lost while it ran task ${one.uid}: ${reason}`
    : `node ${agent} was lost, as others before it, and task ${one.uid} may have begun: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

/** The failed attempts among jobs that had begun on a lost node. */
export function toLostAttempts(
  begun: readonly DriverJob[],
  agent: string,
  reason: string,
): readonly LostAttempt[] {
  const lost: LostAttempt[] = []
  for (const one of begun) {
    const report = lostReport(one, agent, reason)
    // The session counts attempts of the whole group, not of its members.
    if (report.kind !== 'fail' || one.group !== null) continue
    lost.push({ uid: one.uid, attempt: one.wireAttempt, message: messageOf(report.error) })
  }
  return lost
}
