/** Takes what agents tell about ends, from the wire and from the stream, each end once. */

import type { AttemptFacts } from '../../backends/backend.ts'
import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, fromErrorRecord, toErrorRecord } from '../../foundation/error-record.ts'
import { BackendError, messageOf } from '../../foundation/errors.ts'
import type { BrokerStore, StreamPosition } from '../broker/broker.ts'
import type { StoredObjects } from '../broker/stored-objects.ts'
import { decode } from '../wire/codec.ts'
import { splitUids } from '../wire/columns.ts'
import { namesObject } from '../wire/ends.ts'
import { type Key, open } from '../wire/envelope.ts'
import { unpackCompletions, type WireCompletions } from '../wire/completions.ts'
import { agentClosed, type EndsMessage, type ToldEvents, type WireEnd } from '../wire/messages.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { AgentLink, DriverJob } from './agent-link.ts'
import type { DriverJobs } from './jobs/driver-jobs.ts'
import type { EarlierRun } from './earlier/earlier-run.ts'
import { toEnd } from './jobs/job-times.ts'
import { NumberSet } from './number-set.ts'
import type { ReceivedMessage } from './recorded-messages.ts'
import { lostReport } from './unhappy-ends.ts'

interface ReadValue {
  readonly value: unknown
  readonly bytes: number
}

type OutputFacts = Pick<AttemptFacts, 'stdout' | 'stderr'>

/** Between two requests for a value that the server has lost. */
const askAgainMs = 500
/** An agent whose memory was full may have given up what it had for an earlier start. */
const mostEarlierAsks = 120

export interface EndReceiverOptions {
  readonly clock: Clock
  /** Of this run of the session, once it is known. */
  readonly key: () => Key
  readonly subjects: SessionSubjects
  readonly store: BrokerStore
  /** Values that were too large for a message. */
  readonly objects: StoredObjects
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** The agents that are used now, by name. */
  readonly agents: ReadonlyMap<string, AgentLink>
  /** What an agent told that has left. */
  readonly onTold: (agent: AgentLink, told: ToldEvents) => void
  /** Ends of an earlier start came. */
  readonly onEarlier: () => void
  readonly onRefused: (reason: string) => void
  /** An earlier start has taken the large value of this end, and nobody has it any more. */
  readonly onValueLost: (one: DriverJob, end: WireEnd) => void
}

export class EndReceiver {
  readonly #options: EndReceiverOptions
  /** Messages that came, by the use of an agent that they are numbered in. */
  readonly #received = new Map<number, NumberSet>()
  /** The same of uses that this driver does not know: those of an earlier start. */
  readonly #receivedEarlier = new Map<number, NumberSet>()
  /** How far each subject was read; what came before is not read again. */
  readonly #positions = new Map<string, StreamPosition>()
  /** Subjects of messages that were dropped because nobody knew yet whose they are. */
  readonly #dropped = new Set<string>()

  /** Without one, ends of unknown agents are those of another run, which somebody sends again. */
  hasEarlierStart = false

  constructor(options: EndReceiverOptions) {
    this.#options = options
  }

  /** Whether this driver has used an agent under this number. */
  hasUsed(epoch: number): boolean {
    return this.#received.has(epoch)
  }

  /** The messages of this use of an agent count from now on. */
  use(epoch: number): NumberSet {
    const known = this.#received.get(epoch)
    if (known !== undefined) return known
    const added = this.#receivedEarlier.get(epoch) ?? new NumberSet()
    this.#receivedEarlier.delete(epoch)
    this.#received.set(epoch, added)
    return added
  }

  /** What the stream has of a subject, and has got since it was read last. */
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

  take(subject: string, data: Uint8Array): void {
    const { key, jobs, earlier, agents, onTold, onEarlier, onRefused } = this.#options
    let opened
    try {
      opened = open(key(), subject, data)
    } catch (error) {
      return onRefused(messageOf(error))
    }
    const { epoch, number } = opened
    const payload = opened.payload as EndsMessage
    const received = this.#received.get(epoch)
    // Before it has answered, an agent may send ends of an earlier start.
    if (received === undefined) {
      if (this.hasEarlierStart) this.#takeEarlier(epoch, number, payload)
      else this.#dropped.add(subject)
      return
    }
    const agent = agents.get(payload.agent)
    if (agent?.isAttached === false) {
      // Its answer says which messages are to be recorded: read again after it.
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
    for (const told of payload.told ?? []) if (!agent.hasHeard(told)) onTold(agent, told)
    const take = (): void => this.#takeOwn(agent, number, payload, data.length)
    agent.takeAfter(payload.events, take)
  }

  /** Ends of jobs of this start. */
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
        // One that names an object is alone in its message.
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
   * An end of nothing that the agent was sent: of what it holds for an earlier start, or of an
   * attempt that was lost with it before it came back.
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
    const { jobs } = this.#options
    const { beganMs, atMs, workerId, outcome } = end
    if (outcome.kind === 'complete-large') {
      return void this.#takeLargeEnd(one, end, agent, message)
    }
    if (end.outputObject !== undefined || end.errorObject !== undefined) {
      return void this.#takeStoredParts(one, end, agent, message)
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

  /** The agent ended it by itself: it leaves, or it took the driver for gone. */
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

  /** The value was too large for a message. */
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

  /** Output or error were too large for a message. Without them the end counts all the same. */
  async #takeStoredParts(
    one: DriverJob,
    { outputObject, errorObject, ...end }: WireEnd,
    agent: AgentLink | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    one.isEnding = true
    const read = async (object: string | undefined): Promise<ReadValue | null> =>
      object === undefined ? null : this.#readValue(object, message, agent === null)
    const output = await read(outputObject)
    const stored = await read(errorObject)
    message?.agent.taken(message.number, (output?.bytes ?? 0) + (stored?.bytes ?? 0))
    if (this.#options.jobs.findOwn(one.job) !== one) return
    const facts = output === null ? end.facts : { ...end.facts, ...(output.value as OutputFacts) }
    const isWhole = end.outcome.kind === 'fail' && stored !== null
    const error = stored?.value as ErrorRecord
    const outcome = isWhole ? { ...end.outcome, error } : end.outcome
    this.takeEnd(one, { ...end, facts, outcome }, agent, message)
  }

  /**
   * `null` when nobody has it, or the session has ended. Waits for the broker, and for the agent
   * that told of it if the server has lost it: an agent keeps it until it is taken.
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
      if (message === null || !isThere || objects.isClosed) return null
      if (isEarlier && asks === mostEarlierAsks) return null
      agent.askForValue(message.number)
      await sleep(clock, askAgainMs)
    }
  }

  /** Ends of an agent that counts as lost: the tasks have moved or failed. */
  #dropAll({ agent, completions, ends }: EndsMessage): void {
    const { jobs } = this.#options
    for (const { uid, attempt } of unpackCompletions(completions)) {
      jobs.drop(agent, uid, attempt, null)
    }
    for (const { uid, attempt } of ends) jobs.drop(agent, uid, attempt, null)
  }
}
