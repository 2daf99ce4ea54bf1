/** The driver's link to one agent: sends it messages, and receives its reports. */

import type { Clock } from '../../foundation/clock.ts'
import type { Broker } from '../broker/broker.ts'
import { RemoteAgent } from '../protocol/remote-agent.ts'
import { encode } from '../wire/codec.ts'
import type { Keys } from '../wire/envelope.ts'
import { encodeReferences, payloadLimit, type ReferenceMessage } from '../wire/job-batches.ts'
import {
  type AgentReport,
  type Attached,
  type DriverMessage,
  type EventsMark,
  expectMessage,
  type JobReference,
} from '../wire/messages.ts'
import { ReliableLink } from '../wire/reliable-link.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { NumberSet } from '../protocol/number-set.ts'
import type { KnownAgent } from './agent-directory.ts'

export interface AgentLinkOptions {
  readonly known: KnownAgent
  /** Identifies this link. Each attach to an agent gets another number. */
  readonly link: number
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onReport: (report: AgentReport) => void
  readonly onRefused: (reason: string) => void
}

/** Longer cancel reasons are cut for the agent. The session keeps the whole reason. */
const maxReasonLength = 1000

export class AgentLink {
  readonly known: KnownAgent
  readonly agent: RemoteAgent
  readonly link: number
  readonly #options: AgentLinkOptions
  readonly #link: ReliableLink
  readonly #sendSubject: string
  #attachedMs = -Infinity
  #expectsEvents = true
  /** Results that wait because the events of their tasks have not arrived yet. */
  #waitingResults: { readonly events: EventsMark; readonly apply: () => void }[] = []

  constructor(options: AgentLinkOptions) {
    const { known, keys, link, subjects, broker, clock } = options
    this.#options = options
    this.link = link
    this.known = known
    this.agent = new RemoteAgent(known, () => clock.nextTurn(() => this.#sendCancels()))
    this.#sendSubject = subjects.toAgent(this.agent.name)
    this.#link = new ReliableLink({
      clock,
      sendKey: keys.toAgent,
      receiveKey: keys.toDriver,
      epoch: link,
      idleSubject: this.#sendSubject,
      publish: (subject, data) => broker.publish(subject, data),
      onMessage: (payload) => {
        options.onReport(expectMessage(payload, 'report'))
        if (this.#waitingResults.length > 0) this.#applyWaitingResults()
      },
      onRefused: options.onRefused,
    })
  }

  /** Takes the agent's answer to the attach request. See `AgentResults.attach`. */
  markAttached(
    received: NumberSet,
    answer: Attached & { kind: 'attached' },
    isFirst: boolean,
    unread?: ReadonlySet<number>,
  ): void {
    this.agent.isAttached = true
    this.agent.hasReportedEarlier = !isFirst
    this.#attachedMs = this.#options.clock.monotonicMs()
    this.agent.results.attach(received, answer, isFirst, unread)
  }

  runAfterEvents(events: EventsMark | undefined, apply: () => void): void {
    const isAwaited = this.#expectsEvents && events?.link === this.link
    if (events === undefined || !isAwaited || this.hasReceived(events)) return apply()
    this.#link.requestMissing()
    this.#waitingResults.push({ events, apply })
  }

  hasReceived({ link, number }: EventsMark): boolean {
    return link === this.link && number <= this.#link.received
  }

  #applyWaitingResults(): void {
    const waiting = this.#waitingResults
    this.#waitingResults = []
    for (const { events, apply } of waiting) this.runAfterEvents(events, apply)
  }

  ignoreEvents(): void {
    this.#expectsEvents = false
    this.#applyWaitingResults()
  }

  /**
   * Asks for messages with results that neither arrived nor are in the stream. Returns `false` if
   * there are none.
   */
  requestMissing(): boolean {
    const { missing } = this.agent.results
    if (missing === null) return false
    this.#post({ kind: 'missing', ...missing })
    return true
  }

  requestValue(number: number): void {
    this.#post({ kind: 'missing', from: number, to: number })
  }

  /** When the agent was last heard. Its answer to the attach request counts. */
  get lastHeardMs(): number {
    return Math.max(this.#attachedMs, this.#link.lastHeardMs)
  }

  receive(subject: string, data: Uint8Array): void {
    this.#link.receive(subject, data)
  }

  send(payload: Buffer): void {
    this.#link.send(this.#sendSubject, payload)
  }

  #sendCancels(): void {
    for (const [reason, jobs] of this.agent.takeCancels()) {
      const shortReason = reason.slice(0, maxReasonLength)
      this.#postInParts(jobs, (part) => ({ kind: 'cancel', jobs: part, reason: shortReason }))
    }
  }

  /** Asks the agent to return jobs that have not begun. */
  recall(jobs: readonly JobReference[]): void {
    this.#postInParts(jobs, (part) => ({ kind: 'recall', jobs: part }))
  }

  tick(): void {
    this.agent.results.giveUpUnread()
    this.reportResults()
    if (this.#waitingResults.length > 0) this.#link.requestMissing()
    this.#link.tick()
  }

  resend(): void {
    this.#link.resend()
  }

  /** Tells the agent which of its results it need not keep. */
  reportResults(): void {
    const report = this.agent.results.takeReport()
    if (report !== null) this.#post({ kind: 'recorded', ...report })
  }

  #postInParts(jobs: readonly JobReference[], toMessage: ReferenceMessage): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const payload of encodeReferences(jobs, limitBytes, toMessage)) this.send(payload)
  }

  #post(message: DriverMessage): void {
    this.#link.send(this.#sendSubject, encode(message))
  }
}
