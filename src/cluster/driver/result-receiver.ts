/** Receives results from agents, directly and from the stream. Processes each result once. */

import type { AttemptFacts } from '../../backends/backend.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '../../foundation/error-record.ts'
import { BackendError, messageOf, WorkerLostError } from '../../foundation/errors.ts'
import type { BrokerStore, StreamPosition } from '../broker/broker.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import { decode } from '../wire/codec.ts'
import { splitUids } from '../wire/columns.ts'
import { refersToObject, type ResultReport } from '../wire/results.ts'
import { type Key, open } from '../wire/envelope.ts'
import {
  agentClosedReason,
  expectMessage,
  isErrorRecord,
  isOutput,
  type LostAttempt,
  type ReportedEvents,
  type ResultsMessage,
  type WireResult,
} from '../wire/messages.ts'
import { unpackCompletions, type WireCompletions } from '../wire/completions.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { DriverJob, RemoteAgent } from '../protocol/remote-agent.ts'
import type { AgentLink } from './agent-link.ts'
import type { DriverJobs } from '../protocol/driver-jobs.ts'
import type { EarlierRun } from '../protocol/earlier-run.ts'
import { toEndMoment } from '../protocol/job-times.ts'
import { NumberSet } from '../protocol/number-set.ts'
import type { ReceivedMessage } from '../protocol/recorded-messages.ts'

interface LoadedValue {
  readonly value: unknown
  readonly bytes: number
}

type OutputFacts = Pick<AttemptFacts, 'stdout' | 'stderr'>

const valueRequestDelayMs = 500
/**
 * How many times to ask an agent for a value of an earlier start. The agent may have dropped it.
 */
const maxEarlierRequests = 120

export interface ResultReceiverOptions {
  readonly clock: Clock
  readonly key: () => Key
  readonly subjects: SessionSubjects
  readonly store: BrokerStore
  readonly objects: StoredObjects
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  readonly links: ReadonlyMap<string, AgentLink>
  readonly onEvents: (agent: RemoteAgent, report: ReportedEvents) => void
  readonly onEarlier: () => void
  readonly onRefused: (reason: string) => void
  readonly onFailed: (error: unknown) => void
  /** Called if an earlier start of the driver has read and deleted the value of this result. */
  readonly onValueLost: (one: DriverJob, end: WireResult) => void
}

export class ResultReceiver {
  readonly #options: ResultReceiverOptions
  /** The numbers of received messages, by the `endsEpoch` of the session on the agent. */
  readonly #received = new Map<number, NumberSet>()
  /** Like `#received`, for an `endsEpoch` of an earlier start. */
  readonly #receivedEarlier = new Map<number, NumberSet>()
  readonly #positions = new Map<string, StreamPosition>()
  /** Subjects of messages that came too early. The messages are read from the stream later. */
  readonly #dropped = new Set<string>()

  /** Whether results with an unknown `endsEpoch` may belong to an earlier start of the driver. */
  hasEarlierStart = false

  constructor(options: ResultReceiverOptions) {
    this.#options = options
  }

  hasUsedEpoch(epoch: number): boolean {
    return this.#received.has(epoch)
  }

  /**
   * From now on, accepts messages with this `endsEpoch`. Returns the numbers of those that were
   * received so far.
   */
  acceptEpoch(epoch: number): NumberSet {
    const known = this.#received.get(epoch)
    if (known !== undefined) return known
    const added = this.#receivedEarlier.get(epoch) ?? new NumberSet()
    this.#receivedEarlier.delete(epoch)
    this.#received.set(epoch, added)
    return added
  }

  /** Reads and processes the messages of a subject that were stored since the last call. */
  async readStream(subject: string): Promise<void> {
    const { store, subjects } = this.#options
    const { stream, allResults } = subjects
    const isWhole = this.#dropped.delete(subject)
    const known = this.#positions.get(subject) ?? this.#positions.get(allResults) ?? null
    const after = isWhole ? null : known
    const { messages, position } = await store.read(stream, subject, after)
    for (const message of messages) this.receive(message.subject, message.data)
    this.#positions.set(subject, position)
  }

  receive(subject: string, data: Uint8Array): void {
    try {
      this.#handleMessage(subject, data)
    } catch (error) {
      this.#options.onRefused(messageOf(error))
    }
  }

  #handleMessage(subject: string, data: Uint8Array): void {
    const { key, jobs, earlier, links, onEvents, onEarlier } = this.#options
    const { epoch, number, payload: decoded } = open(key(), subject, data)
    const payload = expectMessage(decoded, 'ends')
    const received = this.#received.get(epoch)
    // The results may arrive before the agent's answer to the attach request.
    if (received === undefined) {
      if (this.hasEarlierStart) this.#handleEarlier(epoch, number, payload)
      else this.#dropped.add(subject)
      return
    }
    const link = links.get(payload.agent)
    if (link?.agent.isAttached === false) {
      // The agent's answer shows which messages are recorded, so this message is read again later.
      this.#dropped.add(subject)
      return
    }
    if (!received.add(number)) return
    if (link?.agent.results.epoch !== epoch) return this.#dropResults(payload)
    const { agent } = link
    if (agent.results.isFromEarlierStart(number)) {
      if (payload.ends.some(refersToObject)) agent.results.keepUnread(number)
      else agent.results.markSettled(number)
      earlier.addResults(payload, epoch, number)
      return onEarlier()
    }
    jobs.placement.setAhead(agent.name, payload.ahead)
    for (const report of payload.reports ?? [])
      if (!link.hasReceived(report)) onEvents(agent, report)
    const take = (): void => this.#handleResults(agent, number, payload, data.length)
    link.runAfterEvents(payload.events, take)
  }

  #handleResults(agent: RemoteAgent, number: number, payload: ResultsMessage, bytes: number): void {
    const { jobs } = this.#options
    const { completions, ends } = payload
    const count = completions.indexes.length + ends.length
    const message = jobs.recorded.createMessage(agent, number, count)
    this.#handleCompletions(agent, completions, message)
    let isTaken = true
    for (const end of ends) {
      const one = jobs.find(end.index, end.uid, end.attempt)
      if (one?.agent !== agent) this.#handleUnknown(agent, end, message)
      else {
        // The value of such a result must still be read from the broker's store. Its message, which
        // has no other result, is marked as delivered after that.
        if (refersToObject(end)) isTaken = false
        this.reportResult(one, end, agent, message)
      }
    }
    if (isTaken) this.#markDelivered(message, bytes)
  }

  #markDelivered({ agent, number }: ReceivedMessage, bytes: number): void {
    agent.results.markDelivered(number, bytes)
    if (agent.results.isReportUrgent) this.#findLink(agent)?.reportResults()
  }

  /** Returns `undefined` if the agent was lost. */
  #findLink(agent: RemoteAgent): AgentLink | undefined {
    const link = this.#options.links.get(agent.name)
    return link?.agent === agent && !agent.isLost ? link : undefined
  }

  #handleCompletions(
    agent: RemoteAgent,
    completions: WireCompletions,
    message: ReceivedMessage,
  ): void {
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
        this.#handleUnknown(agent, end, message)
        continue
      }
      jobs.reportStart(one, agent, { beganMs, atMs, workerId }, now)
      const at = toEndMoment(one, agent, atMs, now)
      jobs.end(one, { kind: 'complete', at, value: values?.[row], facts: worker }, message)
    }
  }

  /**
   * Handles the result of an attempt that an earlier start of the driver sent, or that was given up
   * while the agent was lost.
   */
  #handleUnknown(agent: RemoteAgent, end: WireResult, message: ReceivedMessage): void {
    const { jobs, earlier } = this.#options
    const { number } = message
    if (
      !earlier.addLateResult(agent, end, { agent: agent.name, epoch: agent.results.epoch, number })
    ) {
      jobs.drop(agent.name, end.uid, end.attempt, message)
    } else if (refersToObject(end)) agent.results.keepUnread(number)
    else jobs.recorded.markDropped(message)
  }

  #handleEarlier(epoch: number, number: number, payload: ResultsMessage): void {
    const received = this.#receivedEarlier.get(epoch) ?? new NumberSet()
    this.#receivedEarlier.set(epoch, received)
    if (received.add(number)) this.#options.earlier.addResults(payload, epoch, number)
  }

  reportResult(
    one: DriverJob,
    end: WireResult,
    agent: RemoteAgent | null,
    message: ReceivedMessage | null,
  ): void {
    const { jobs, onFailed } = this.#options
    const { beganMs, atMs, workerId, outcome } = end
    if (outcome.kind === 'complete-large') {
      this.#reportLargeResult(one, end, agent, message).catch(onFailed)
      return
    }
    if (end.outputObject !== undefined || end.errorObject !== undefined) {
      this.#reportWithStoredParts(one, end, agent, message).catch(onFailed)
      return
    }
    const now = jobs.readTime()
    if (beganMs !== null && workerId !== null) {
      jobs.reportStart(one, agent, { beganMs, workerId, atMs }, now)
    }
    const facts = end.facts === null ? {} : { facts: end.facts }
    const at = toEndMoment(one, agent, atMs, now)
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
      } else this.#handleAbandoned(one, agent, outcome.reason, message)
    }
  }

  /** Handles an attempt that the agent canceled, because it closed or had lost the driver. */
  #handleAbandoned(
    one: DriverJob,
    agent: RemoteAgent | null,
    reason: string,
    message: ReceivedMessage | null,
  ): void {
    const { jobs } = this.#options
    if (one.isStarted) {
      if (reason === agentClosedReason) agent?.abandoned.push(one.uid)
      return jobs.end(one, toLostReport(one, agent?.name ?? '', reason), message)
    }
    if (message !== null) jobs.recorded.markDropped(message)
    jobs.move([one])
  }

  async #reportLargeResult(
    one: DriverJob,
    end: WireResult,
    agent: RemoteAgent | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    const { jobs, onValueLost } = this.#options
    const { outcome } = end
    if (outcome.kind !== 'complete-large') return
    one.isEnding = true
    const found = await this.#readValue(outcome.object, message, agent === null)
    if (message !== null) this.#markDelivered(message, found?.bytes ?? 0)
    if (jobs.findEntry(one.job) !== one) return
    if (found !== null) {
      const complete = { kind: 'complete', value: found.value } as const
      return this.reportResult(one, { ...end, outcome: complete }, agent, message)
    }
    one.isEnding = false
    if (agent === null) {
      if (message !== null) jobs.recorded.markDropped(message)
      return onValueLost(one, end)
    }
    const error = new BackendError(`the broker has lost the value of task ${one.uid}`, {
      code: 'ResultLostError',
    })
    const fail = { kind: 'fail', error: toErrorRecord(error), isThrown: false } as const
    this.reportResult(one, { ...end, outcome: fail }, agent, message)
  }

  /**
   * Reads an output or error that was too large for a message. Reports the result even if they
   * cannot be read.
   */
  async #reportWithStoredParts(
    one: DriverJob,
    { outputObject, errorObject, ...end }: WireResult,
    agent: RemoteAgent | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    one.isEnding = true
    const read = async (
      object: string | undefined,
      isValid: (value: unknown) => boolean,
    ): Promise<LoadedValue | null> => {
      if (object === undefined) return null
      const found = await this.#readValue(object, message, agent === null)
      return found !== null && isValid(found.value) ? found : null
    }
    const output = await read(outputObject, isOutput)
    const stored = await read(errorObject, isErrorRecord)
    const bytes = (output?.bytes ?? 0) + (stored?.bytes ?? 0)
    if (message !== null) this.#markDelivered(message, bytes)
    if (this.#options.jobs.findEntry(one.job) !== one) return
    const facts = output === null ? end.facts : { ...end.facts, ...(output.value as OutputFacts) }
    const hasWholeError = end.outcome.kind === 'fail' && stored !== null
    const error = stored?.value as ErrorRecord
    const outcome = hasWholeError ? { ...end.outcome, error } : end.outcome
    this.reportResult(one, { ...end, facts, outcome }, agent, message)
  }

  /**
   * Reads a stored value. If the server has lost it, asks the agent. Returns `null` if it is lost
   * for good or the session has ended.
   */
  async #readValue(
    object: string,
    message: ReceivedMessage | null,
    isEarlier: boolean,
  ): Promise<LoadedValue | null> {
    const { objects, clock } = this.#options
    for (let asks = 0; ; asks++) {
      const data = await objects.readAndDelete(object).catch(() => null)
      if (data !== null) return { value: decode(data), bytes: data.length }
      const link = message === null ? undefined : this.#findLink(message.agent)
      if (message === null || link === undefined || objects.closed.aborted) return null
      if (isEarlier && asks === maxEarlierRequests) return null
      link.requestValue(message.number)
      await sleep(clock, valueRequestDelayMs)
    }
  }

  #dropResults({ agent, completions, ends }: ResultsMessage): void {
    const { jobs } = this.#options
    for (const { uid, attempt } of [...unpackCompletions(completions), ...ends]) {
      jobs.drop(agent, uid, attempt, null)
    }
  }
}

export function toLostReport(one: DriverJob, agent: string, reason: string): ResultReport {
  if (one.cancelReason !== null) return { kind: 'cancel', reason: one.cancelReason }
  const text = one.isStarted
    ? `node ${agent} was lost while it ran task ${one.uid}: ${reason}`
    : `node ${agent} was lost, as others before it, and task ${one.uid} may have begun: ${reason}`
  return { kind: 'fail', error: new WorkerLostError(text, { code: 'NodeLostError' }) }
}

export function toLostAttempts(
  begun: readonly DriverJob[],
  agent: string,
  reason: string,
): readonly LostAttempt[] {
  const lost: LostAttempt[] = []
  for (const one of begun) {
    const report = toLostReport(one, agent, reason)
    // The session counts the attempts of a group as a whole, not those of each job.
    if (report.kind !== 'fail' || one.group !== null) continue
    lost.push({ uid: one.uid, attempt: one.wireAttempt, message: messageOf(report.error) })
  }
  return lost
}
