/** Takes what agents tell about ends, from the wire and from the stream, each end once. */

import { deserialize } from 'node:v8'
import { fromErrorRecord } from '../../foundation/error-record.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { BrokerStore } from '../broker/broker.ts'
import { open } from '../wire/envelope.ts'
import type { EndsMessage, WireEnd } from '../wire/messages.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import { type AgentLink, NumberSet } from './agent-link.ts'
import type { DriverJob } from './agent-link.ts'
import type { DriverJobs, EndReport } from './driver-jobs.ts'
import type { EarlierRun } from './earlier-run.ts'
import type { ReceivedMessage } from './recorded-messages.ts'
import { lostReport } from './unhappy-ends.ts'

export interface EndReceiverOptions {
  readonly key: Buffer
  readonly subjects: SessionSubjects
  readonly store: BrokerStore
  readonly jobs: DriverJobs
  readonly earlier: EarlierRun
  /** The agents that are used now, by name. */
  readonly agents: ReadonlyMap<string, AgentLink>
  /** Ends of an earlier start came. */
  readonly onEarlier: () => void
  readonly onRefused: (reason: string) => void
}

export class EndReceiver {
  readonly #options: EndReceiverOptions
  /** Messages that came, by the use of an agent that they are numbered in. */
  readonly #received = new Map<number, NumberSet>()

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
    const added = new NumberSet()
    this.#received.set(epoch, added)
    return added
  }

  /** What the stream has of a subject. */
  async readStream(subject: string): Promise<void> {
    const { store, subjects } = this.#options
    for (const message of await store.read(subjects.stream, subject)) {
      this.take(message.subject, message.data)
    }
  }

  take(subject: string, data: Uint8Array): void {
    const { key, jobs, earlier, agents, onEarlier, onRefused } = this.#options
    let opened
    try {
      opened = open(key, subject, data)
    } catch (error) {
      return onRefused(messageOf(error))
    }
    const { epoch, number } = opened
    const payload = opened.payload as EndsMessage
    const received = this.#received.get(epoch)
    // Before it has answered, an agent may send ends of an earlier start.
    if (received === undefined) return earlier.addEnds(payload)
    if (!received.add(number)) return
    const agent = agents.get(payload.agent)
    if (agent?.endsEpoch !== epoch) return this.#dropAll(payload)
    if (agent.isEarlier(number)) {
      earlier.addEnds(payload)
      return onEarlier()
    }
    jobs.placement.setAhead(agent.name, payload.ahead)
    const { completions, ends } = payload
    const message = jobs.recorded.expect(agent, number, completions.length + ends.length)
    for (const [uid, attempt, beganMs, atMs, workerId, value] of completions) {
      const one = jobs.find(uid, attempt)
      if (one === null) {
        jobs.drop(agent.name, uid, attempt, message)
        continue
      }
      jobs.reportStart(one, agent, beganMs, workerId)
      const at = jobs.momentOf(one, agent, atMs)
      jobs.end(one, { kind: 'complete', at, value, facts: { workerId } }, message)
    }
    for (const end of ends) {
      const one = jobs.find(end.uid, end.attempt)
      if (one === null) jobs.drop(agent.name, end.uid, end.attempt, message)
      else void this.takeEnd(one, end, agent, message)
    }
  }

  async takeEnd(
    one: DriverJob,
    end: WireEnd,
    agent: AgentLink | null,
    message: ReceivedMessage | null,
  ): Promise<void> {
    const { jobs } = this.#options
    const { beganMs, workerId, outcome } = end
    if (beganMs !== null && workerId !== null) jobs.reportStart(one, agent, beganMs, workerId)
    const facts = end.facts === null ? {} : { facts: end.facts }
    const at = jobs.momentOf(one, agent, end.atMs)
    if (outcome.kind === 'complete') {
      jobs.end(one, { kind: 'complete', at, value: outcome.value, ...facts }, message)
    } else if (outcome.kind === 'fail') {
      const error = fromErrorRecord(outcome.error)
      const thrown = outcome.isThrown ? ({ isThrown: true } as const) : {}
      jobs.end(one, { kind: 'fail', at, error, ...thrown, ...facts }, message)
    } else if (outcome.kind === 'cancel') {
      const { cancelReason } = one
      if (cancelReason !== null) {
        jobs.end(one, { kind: 'cancel', at, reason: cancelReason, ...facts }, message)
      } else this.#takeGivenUp(one, agent, outcome.reason, message)
    } else {
      const report = await this.#readValue(outcome.object)
      if (jobs.findOwn(one.job) === one) jobs.end(one, { ...report, at, ...facts }, message)
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
    if (one.isStarted) return jobs.end(one, lostReport(one, agent?.name ?? '', reason), message)
    if (message !== null) jobs.recorded.dropped(message)
    jobs.move([one])
  }

  /** A value that was too large for a message. */
  async #readValue(object: string): Promise<EndReport> {
    const { store, subjects } = this.#options
    try {
      const data = await store.getObject(subjects.stream, object)
      if (data === null) throw new Error(`the broker has lost the value ${object}`)
      const value: unknown = deserialize(data)
      store.deleteObject(subjects.stream, object).catch(() => {
        // Removed with the session, at the latest.
      })
      return { kind: 'complete', value }
    } catch (error) {
      return { kind: 'fail', error }
    }
  }

  /** Ends of an agent that counts as lost: the tasks have moved or failed. */
  #dropAll({ agent, completions, ends }: EndsMessage): void {
    const { jobs } = this.#options
    for (const [uid, attempt] of completions) jobs.drop(agent, uid, attempt, null)
    for (const { uid, attempt } of ends) jobs.drop(agent, uid, attempt, null)
  }
}
