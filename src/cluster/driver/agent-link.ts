/** The driver's link to one agent: the agent's jobs, and which of its results are recorded. */

import type { ContinuedAttempt, Job } from '../../backends/backend.ts'
import type { Clock } from '../../foundation/clock.ts'
import { type Indexed, IndexedSet } from '../../runtime/indexed-set.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { Broker } from '../broker/broker.ts'
import { encode } from '../wire/codec.ts'
import type { Keys } from '../wire/envelope.ts'
import {
  encodeReferences,
  type NumberedJob,
  payloadLimit,
  type ReferenceMessage,
} from '../wire/job-batches.ts'
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
import type { KnownAgent } from './directory/agent-directory.ts'
import type { JobGroup } from './placement/job-group.ts'
import type { Exclusion } from './placement/placement-node.ts'
import type { PlacedJob } from './placement/shapes.ts'
import { NumberSet } from './number-set.ts'

export interface AgentLinkOptions {
  readonly agent: KnownAgent
  /** Identifies this link. Each attach to an agent gets another number. */
  readonly link: number
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onReport: (report: AgentReport) => void
  readonly onRefused: (reason: string) => void
}

/**
 * The number of later messages after which an unread message for an earlier start of the driver is
 * given up.
 */
const maxLaterMessages = 1000
/**
 * Above this total size, results are confirmed immediately, because an agent with a full store
 * begins no tasks.
 */
const maxUnconfirmedBytes = 64 * 1024
/** Longer cancel reasons are cut for the agent. The session keeps the whole reason. */
const maxReasonLength = 1000

export class AgentLink {
  readonly name: string
  readonly epoch: number
  readonly link: number
  readonly agent: KnownAgent
  readonly jobs = new IndexedSet<DriverJob>()
  endMessages = 0
  /**
   * Identifies the session on the agent, which numbers its messages with results up to
   * `endMessages`.
   */
  endsEpoch = 0
  isAttached = false
  /** Whether all results that the agent had for an earlier start of the driver have arrived. */
  hasReportedEarlier = false
  isLost = false
  /** The uids of tasks that were running when the agent closed. */
  readonly abandoned: string[] = []
  readonly #options: AgentLinkOptions
  readonly #link: ReliableLink
  readonly #sendSubject: string
  /**
   * The numbers of received messages with results. Includes messages that this start of the agent
   * sent over earlier links.
   */
  #received = new NumberSet()
  readonly #recorded = new NumberSet()
  /** Messages with unrecordable results that were not reported to the agent yet. */
  readonly #lost: number[] = []
  /** Messages whose results, including their values, were passed to the session. */
  readonly #delivered = new NumberSet()
  /**
   * Messages for an earlier start of the driver. Their objects were not read, so the agent must
   * keep them.
   */
  readonly #unread = new Set<number>()
  #reportedRecorded = 0
  #reportedDelivered = 0
  #unreportedBytes = 0
  #earlierThrough = 0
  #expectedMessages = 0
  #missingThrough = 0
  #attachedMs = -Infinity
  #expectsEvents = true
  /** Results that wait because the events of their tasks have not arrived yet. */
  #waitingResults: { readonly events: EventsMark; readonly apply: () => void }[] = []
  #cancels = new Map<string, JobReference[]>()
  #isCancelScheduled = false

  constructor(options: AgentLinkOptions) {
    const { agent, keys, link, subjects, broker, clock } = options
    this.#options = options
    this.link = link
    this.agent = agent
    this.name = agent.announcement.name
    this.epoch = agent.announcement.epoch
    this.#sendSubject = subjects.toAgent(this.name)
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

  /**
   * `received` has the numbers of the agent's messages that have arrived. `unread` has those whose
   * objects were not read.
   */
  markAttached(
    received: NumberSet,
    answer: Attached & { kind: 'attached' },
    isFirst: boolean,
    unread: ReadonlySet<number> = new Set(),
  ): void {
    const { endMessages, endsEpoch, unrecorded } = answer
    this.#received = received
    this.isAttached = true
    this.hasReportedEarlier = !isFirst
    this.#attachedMs = this.#options.clock.monotonicMs()
    this.endMessages = endMessages
    this.endsEpoch = endsEpoch
    this.#earlierThrough = isFirst ? endMessages : 0
    received.addRange({ from: 1, to: endMessages }, unrecorded)
    const missing = new Set(unrecorded)
    // A message that the agent sent after its answer may arrive before the answer.
    const kept = [...unread].filter(
      (number) => received.has(number) && (number > endMessages || missing.has(number)),
    )
    for (const number of kept) this.keepUnread(number)
    this.#delivered.addAll(received)
    this.#recorded.addAll(received, kept)
    const first = unrecorded.reduce((min, number) => Math.min(min, number), endMessages + 1)
    this.#reportedRecorded = first - 1
    this.#reportedDelivered = first - 1
    this.#missingThrough = endMessages
    this.#expectedMessages = endMessages
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

  isFromEarlierStart(number: number): boolean {
    return number <= this.#earlierThrough
  }

  get isMissingEarlierResults(): boolean {
    return this.#received.through < this.#earlierThrough
  }

  /**
   * Whether results from before the previous call are missing. Later results may still be in
   * transit.
   */
  isMissingResults(): boolean {
    this.#missingThrough = this.#expectedMessages
    this.#expectedMessages = this.endMessages
    return this.#received.through < this.#missingThrough
  }

  /**
   * Asks for messages that neither arrived nor are in the stream. Returns `false` if there are
   * none.
   */
  requestMissing(): boolean {
    const from = this.#received.through + 1
    if (from > this.#missingThrough) return false
    this.#post({ kind: 'missing', from, to: this.#missingThrough })
    return true
  }

  requestValue(number: number): void {
    this.#post({ kind: 'missing', from: number, to: number })
  }

  /** Includes the agent's answer to the attach request. */
  get lastHeardMs(): number {
    return Math.max(this.#attachedMs, this.#link.lastHeardMs)
  }

  receive(subject: string, data: Uint8Array): void {
    this.#link.receive(subject, data)
  }

  send(payload: Buffer): void {
    this.#link.send(this.#sendSubject, payload)
  }

  /** Cancels a job. All cancels of a turn of the event loop are sent together. */
  cancel(job: JobReference, reason: string): void {
    const jobs = this.#cancels.get(reason)
    if (jobs === undefined) this.#cancels.set(reason, [job])
    else jobs.push(job)
    if (this.#isCancelScheduled) return
    this.#isCancelScheduled = true
    this.#options.clock.nextTurn(() => {
      this.#isCancelScheduled = false
      const cancels = this.#cancels
      this.#cancels = new Map()
      for (const [why, references] of cancels) {
        const shortReason = why.slice(0, maxReasonLength)
        this.#postInParts(references, (part) => ({
          kind: 'cancel',
          jobs: part,
          reason: shortReason,
        }))
      }
    })
  }

  /**
   * Asks the agent to return up to `max` jobs that were sent before `beforeMs` and have not begun.
   * Returns the number of these jobs.
   */
  requestReturn(max: number, beforeMs: number): number {
    const jobs = this.jobs
      .toArray()
      .filter(({ isStarted, sinceMs, group }) => !isStarted && sinceMs < beforeMs && !group)
      .slice(-max)
      .map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
    this.#postInParts(jobs, (part) => ({ kind: 'recall', jobs: part }))
    return jobs.length
  }

  markRecorded(number: number): void {
    this.#recorded.add(number)
  }

  /** Marks a message whose results could not be recorded. Only the stream keeps it. */
  markLost(number: number): void {
    this.#lost.push(number)
    this.#recorded.add(number)
  }

  /** Marks a message whose results, including their values, were passed to the session. */
  markReceived(number: number, bytes: number): void {
    this.#delivered.add(number)
    this.#unreportedBytes += bytes
    if (this.#unreportedBytes > maxUnconfirmedBytes) this.#reportRecorded()
  }

  /** Marks a message of which no result will be recorded anymore. */
  markSettled(number: number): void {
    this.#delivered.add(number)
    this.#recorded.add(number)
  }

  /** Marks a message that refers to objects. The agent keeps it until its task is recorded. */
  keepUnread(number: number): void {
    this.#delivered.add(number)
    this.#unread.add(number)
  }

  isUnread(number: number): boolean {
    return this.#unread.has(number)
  }

  tick(): void {
    for (const number of this.#unread) {
      if (this.endMessages <= Math.max(number, this.#earlierThrough) + maxLaterMessages) continue
      this.#unread.delete(number)
      this.markSettled(number)
    }
    this.#reportRecorded()
    if (this.#waitingResults.length > 0) this.#link.requestMissing()
    this.#link.tick()
  }

  resend(): void {
    this.#link.resend()
  }

  #reportRecorded(): void {
    const [through, taken] = [this.#recorded.through, this.#delivered.through]
    this.#unreportedBytes = 0
    if (through <= this.#reportedRecorded && taken <= this.#reportedDelivered) return
    this.#reportedRecorded = through
    this.#reportedDelivered = taken
    const lost = this.#lost.splice(0)
    this.#post({ kind: 'recorded', through, taken, ...(lost.length === 0 ? {} : { lost }) })
  }

  #postInParts(jobs: readonly JobReference[], toMessage: ReferenceMessage): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const payload of encodeReferences(jobs, limitBytes, toMessage)) this.send(payload)
  }

  #post(message: DriverMessage): void {
    this.#link.send(this.#sendSubject, encode(message))
  }
}

/** Jobs that are placed together or not at all. */
export interface DriverJobGroup extends JobGroup<DriverJob> {
  readonly jobs: DriverJob[]
  unplacedCount: number
  /** Called once, with the names of the nodes in the order of the jobs. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** A job of the session, from submission to completion. */
export class DriverJob implements NumberedJob, PlacedJob, Indexed {
  setIndex = -1
  readonly index: number
  readonly job: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly avoidedNode: string | null
  /** The agents that are known to refuse the job. Does not change while the job waits. */
  exclusion: Exclusion | null = null
  /** The group with which the job begins. The jobs of a group are not placed again individually. */
  readonly group: DriverJobGroup | null
  /** The attempt number for agents. It also counts attempts of the driver's earlier starts. */
  wireAttempt: number
  continued: ContinuedAttempt | null = null
  agent: AgentLink | null = null
  readonly submittedMs: number
  /** When the job was sent to its agent. Without an agent, when it began to wait. */
  sinceMs: number
  /** When the attempt began, by the clock of this machine; `null` if it has not begun. */
  startedMs: number | null = null
  /** When the attempt began, by the clock of its agent. */
  beganMs: number | null = null
  latestSeconds = 0
  cancelReason: string | null = null
  /** The number of nodes that were lost while they had the job. */
  moves = 0
  /** Whether the result is known. It is being reported, or its value is being read. */
  isEnding = false

  constructor(
    job: Job,
    index: number,
    sequence: number,
    wireAttempt: number,
    avoidedNode: string | null,
    sinceMs: number,
    group: DriverJobGroup | null,
  ) {
    this.job = job
    this.index = index
    this.submittedMs = sinceMs
    this.sinceMs = sinceMs
    this.spec = job.spec
    this.sequence = sequence
    this.wireAttempt = wireAttempt
    this.avoidedNode = avoidedNode
    this.group = group
  }

  get isStarted(): boolean {
    return this.startedMs !== null
  }

  get isRetry(): boolean {
    return this.job.isRetry === true
  }

  get uid(): string {
    return this.job.uid
  }
}
