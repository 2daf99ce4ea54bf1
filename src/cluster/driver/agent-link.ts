/** The driver's side of one agent: its jobs, its messages, and which of them are recorded. */

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
import type {
  AgentReport,
  Attached,
  DriverMessage,
  EventsMark,
  JobReference,
} from '../wire/messages.ts'
import { expectMessage } from '../wire/message-forms.ts'
import { ReliableLink } from '../wire/reliable-link.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { KnownAgent } from './directory/agent-directory.ts'
import type { JobGroup } from './placement/job-group.ts'
import type { Exclusion } from './placement/placement-node.ts'
import type { PlacedJob } from './placement/shapes.ts'
import { NumberSet } from './number-set.ts'

export interface AgentLinkOptions {
  readonly agent: KnownAgent
  /** Identifies this use of the agent. */
  readonly link: number
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onReport: (report: AgentReport) => void
  readonly onRefused: (reason: string) => void
}

/** After this many further messages, tasks of an earlier start are no longer expected. */
const maxLater = 1000
/**
 * The maximum number of bytes in messages that were taken but not yet reported to the agent. An
 * agent that keeps many messages begins nothing, and its map of attempts grows by thousands of
 * tasks.
 */
const maxUnreportedBytes = 64 * 1024
/** The session has the complete reason. Agents at most pass it to the task's program. */
const maxReasonLength = 1000

export class AgentLink {
  readonly name: string
  readonly epoch: number
  readonly link: number
  readonly agent: KnownAgent
  /** Jobs that were sent to the agent and have not ended. */
  readonly jobs = new IndexedSet<DriverJob>()
  /** The number of messages with results that the agent has sent. */
  endMessages = 0
  /** Identifies the use of the agent in which these messages are numbered. */
  endsEpoch = 0
  isAttached = false
  /** Whether everything that the agent had for an earlier start has arrived. */
  hasReportedEarlier = false
  isLost = false
  /** The uids of tasks that were running when the agent closed. */
  readonly abandoned: string[] = []
  readonly #options: AgentLinkOptions
  readonly #link: ReliableLink
  readonly #downSubject: string
  /**
   * Messages with results that arrived from this start of the agent, in this use and earlier ones.
   */
  #received = new NumberSet()
  readonly #recorded = new NumberSet()
  /** Messages that were lost, which the agent does not know yet. */
  readonly #lost: number[] = []
  /** Messages whose results were given to the session, with their values. */
  readonly #taken = new NumberSet()
  /** Messages for an earlier start with unread objects, which the agent keeps. */
  readonly #unread = new Set<number>()
  #reportedRecorded = 0
  #reportedTaken = 0
  #unreportedBytes = 0
  #earlierThrough = 0
  #expectedEnds = 0
  #missingThrough = 0
  #attachedMs = -Infinity
  #expectsEvents = true
  /** Results that arrived before the events of their tasks. */
  #waitingEnds: { readonly events: EventsMark; readonly take: () => void }[] = []
  #cancels = new Map<string, JobReference[]>()
  #isCancelDue = false

  constructor(options: AgentLinkOptions) {
    const { agent, keys, link, subjects, broker, clock } = options
    this.#options = options
    this.link = link
    this.agent = agent
    this.name = agent.announcement.name
    this.epoch = agent.announcement.epoch
    this.#downSubject = subjects.downTo(this.name)
    this.#link = new ReliableLink({
      clock,
      sendKey: keys.toAgent,
      receiveKey: keys.toDriver,
      epoch: link,
      idleSubject: this.#downSubject,
      publish: (subject, data) => broker.publish(subject, data),
      onMessage: (payload) => {
        options.onReport(expectMessage(payload, 'report'))
        if (this.#waitingEnds.length > 0) this.#takeWaitingEnds()
      },
      onRefused: options.onRefused,
    })
  }

  /**
   * Called when the agent has answered. `received` are its messages that have arrived by now, and
   * `unread` is the part of them with objects that were not read.
   */
  attached(
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
    // A message may overtake an answer that was sent before it.
    const kept = [...unread].filter(
      (number) => received.has(number) && (number > endMessages || missing.has(number)),
    )
    for (const number of kept) this.keep(number)
    this.#taken.addAll(received)
    this.#recorded.addAll(received, kept)
    const first = unrecorded.reduce((min, number) => Math.min(min, number), endMessages + 1)
    this.#reportedRecorded = first - 1
    this.#reportedTaken = first - 1
    this.#missingThrough = endMessages
    this.#expectedEnds = endMessages
  }

  /** Calls `take` when the events of the tasks have arrived, or will never arrive. */
  takeAfter(events: EventsMark | undefined, take: () => void): void {
    const isAwaited = this.#expectsEvents && events?.link === this.link
    if (events === undefined || !isAwaited || this.hasHeard(events)) return take()
    this.#link.askForMissing()
    this.#waitingEnds.push({ events, take })
  }

  /** Whether this message of the current link has arrived. */
  hasHeard({ link, number }: EventsMark): boolean {
    return link === this.link && number <= this.#link.received
  }

  #takeWaitingEnds(): void {
    const waiting = this.#waitingEnds
    this.#waitingEnds = []
    for (const { events, take } of waiting) this.takeAfter(events, take)
  }

  /** Ignores further events of the agent, so that no result waits for them. */
  expectNoEvents(): void {
    this.#expectsEvents = false
    this.#takeWaitingEnds()
  }

  /** Whether the message has results from before this driver used the agent. */
  isEarlier(number: number): boolean {
    return number <= this.#earlierThrough
  }

  /** Whether messages with results for an earlier start have not arrived yet. */
  get isMissingEarlier(): boolean {
    return this.#received.through < this.#earlierThrough
  }

  /**
   * Called every half second. Returns whether messages with results are missing that were sent
   * before the last call; later ones may still be in transit.
   */
  isMissingEnds(): boolean {
    this.#missingThrough = this.#expectedEnds
    this.#expectedEnds = this.endMessages
    return this.#received.through < this.#missingThrough
  }

  /** Asks for messages that neither arrived nor are in the stream; `false` if there are none. */
  askForMissing(): boolean {
    const from = this.#received.through + 1
    if (from > this.#missingThrough) return false
    this.#post({ kind: 'missing', from, to: this.#missingThrough })
    return true
  }

  /** Asks the agent to store the objects of this message again. */
  askForValue(number: number): void {
    this.#post({ kind: 'missing', from: number, to: number })
  }

  /** When the agent's last message about the session arrived, starting with its answer. */
  get heardMs(): number {
    return Math.max(this.#attachedMs, this.#link.heardMs)
  }

  receive(subject: string, data: Uint8Array): void {
    this.#link.receive(subject, data)
  }

  send(payload: Buffer): void {
    this.#link.send(this.#downSubject, payload)
  }

  /** Cancels are collected and sent together in the next turn. */
  cancel(job: JobReference, reason: string): void {
    const jobs = this.#cancels.get(reason)
    if (jobs === undefined) this.#cancels.set(reason, [job])
    else jobs.push(job)
    if (this.#isCancelDue) return
    this.#isCancelDue = true
    this.#options.clock.nextTurn(() => {
      this.#isCancelDue = false
      const cancels = this.#cancels
      this.#cancels = new Map()
      for (const [why, references] of cancels) {
        const cut = why.slice(0, maxReasonLength)
        this.#postCut(references, (part) => ({ kind: 'cancel', jobs: part, reason: cut }))
      }
    })
  }

  /** Asks for jobs that were sent before `beforeMs` and have not begun; returns how many. */
  recall(max: number, beforeMs: number): number {
    const jobs = this.jobs
      .toArray()
      .filter(({ isStarted, sinceMs, group }) => !isStarted && sinceMs < beforeMs && !group)
      .slice(-max)
      .map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
    this.#postCut(jobs, (part) => ({ kind: 'recall', jobs: part }))
    return jobs.length
  }

  /** Called when all results of this message are recorded. */
  recorded(number: number): void {
    this.#recorded.add(number)
  }

  /**
   * Called when recorded lines were lost. The agent need not wait, but the stream keeps the
   * message.
   */
  lost(number: number): void {
    this.#lost.push(number)
    this.#recorded.add(number)
  }

  /**
   * Called when the session has all results of this message. Reported immediately after many bytes.
   */
  taken(number: number, bytes: number): void {
    this.#taken.add(number)
    this.#unreportedBytes += bytes
    if (this.#unreportedBytes > maxUnreportedBytes) this.#reportRecorded()
  }

  /** Called when this use of the agent will record no result of the message. */
  settled(number: number): void {
    this.#taken.add(number)
    this.#recorded.add(number)
  }

  /** Keeps a message for an earlier start that refers to objects, until its task is recorded. */
  keep(number: number): void {
    this.#taken.add(number)
    this.#unread.add(number)
  }

  keeps(number: number): boolean {
    return this.#unread.has(number)
  }

  tick(): void {
    for (const number of this.#unread) {
      if (this.endMessages <= Math.max(number, this.#earlierThrough) + maxLater) continue
      this.#unread.delete(number)
      this.settled(number)
    }
    this.#reportRecorded()
    if (this.#waitingEnds.length > 0) this.#link.askForMissing()
    this.#link.tick()
  }

  resend(): void {
    this.#link.resend()
  }

  #reportRecorded(): void {
    const [through, taken] = [this.#recorded.through, this.#taken.through]
    this.#unreportedBytes = 0
    if (through <= this.#reportedRecorded && taken <= this.#reportedTaken) return
    this.#reportedRecorded = through
    this.#reportedTaken = taken
    const lost = this.#lost.splice(0)
    this.#post({ kind: 'recorded', through, taken, ...(lost.length === 0 ? {} : { lost }) })
  }

  #postCut(jobs: readonly JobReference[], toMessage: ReferenceMessage): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const payload of encodeReferences(jobs, limitBytes, toMessage)) this.send(payload)
  }

  #post(message: DriverMessage): void {
    this.#link.send(this.#downSubject, encode(message))
  }
}

/** Jobs that are placed together, or not at all. */
export interface DriverJobGroup extends JobGroup<DriverJob> {
  readonly jobs: DriverJob[]
  /** The number of jobs in the group without a node. */
  unplaced: number
  /** Called once, with the node of each job. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** A job of the session, from submission to completion. */
export class DriverJob implements NumberedJob, PlacedJob, Indexed {
  setIndex = -1
  readonly index: number
  readonly job: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly avoid: string | null
  /** Agents known not to allow the job. Does not change while it waits. */
  excluded: Exclusion | null = null
  /** The group with which the job begins. Members are not placed again individually. */
  readonly group: DriverJobGroup | null
  /**
   * The attempt number that agents use for the job. Continues the numbering of an earlier start of
   * the session, whose attempts this start does not count.
   */
  wireAttempt: number
  /** Details that the session needs about attempts of an earlier start. */
  continued: ContinuedAttempt | null = null
  /** The agent that has the job; `null` while it waits. */
  agent: AgentLink | null = null
  /** When the session submitted the job. */
  readonly addedMs: number
  /** When the job was sent, or began to wait. */
  sinceMs: number
  /** When the attempt began, by the clock of this machine. */
  startedMs: number | null = null
  /** When the attempt began, by the clock of its agent. */
  beganMs: number | null = null
  latestSeconds = 0
  cancelReason: string | null = null
  /** The number of nodes that were lost while the job may have begun there unreported. */
  moves = 0
  /** Whether the result has arrived: it is being reported, or its value is being read. */
  isEnding = false

  constructor(
    job: Job,
    index: number,
    sequence: number,
    wireAttempt: number,
    avoid: string | null,
    sinceMs: number,
    group: DriverJobGroup | null = null,
  ) {
    this.job = job
    this.index = index
    this.addedMs = sinceMs
    this.sinceMs = sinceMs
    this.spec = job.spec
    this.sequence = sequence
    this.wireAttempt = wireAttempt
    this.avoid = avoid
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
