/** The driver's side of one agent: its jobs, its messages, and what of them is recorded. */

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
import { ReliableLink } from '../wire/reliable-link.ts'
import type { SessionSubjects } from '../wire/subjects.ts'
import type { KnownAgent } from './directory/agent-directory.ts'
import type { JobGroup } from './placement/job-group.ts'
import type { Exclusion } from './placement/placement-node.ts'
import type { PlacedJob } from './placement/shapes.ts'
import { NumberSet } from './number-set.ts'

export interface AgentLinkOptions {
  readonly agent: KnownAgent
  /** Names this use of the agent. */
  readonly link: number
  readonly keys: Keys
  readonly subjects: SessionSubjects
  readonly broker: Broker
  readonly clock: Clock
  readonly onReport: (report: AgentReport) => void
  readonly onRefused: (reason: string) => void
}

/** So many messages later nobody is expected to submit the tasks of an earlier start. */
const mostLater = 1000
/**
 * Of messages that an agent keeps until it hears that they were taken. With many to keep it begins
 * nothing; and the tasks of these, some thousands by now, are in the map where it looks up others.
 */
const mostUntoldBytes = 64 * 1024
/** The session has the whole reason; the agent tells it to the task's program, if at all. */
const mostReasonLength = 1000

export class AgentLink {
  readonly name: string
  readonly epoch: number
  readonly link: number
  readonly agent: KnownAgent
  /** Jobs that were sent there and have not ended. */
  readonly jobs = new IndexedSet<DriverJob>()
  /** How many messages with ends the agent has sent. */
  endMessages = 0
  /** Numbers these messages. */
  endsEpoch = 0
  isAttached = false
  /** Everything that it had for an earlier start has come, and is known to the driver. */
  hasToldEarlier = false
  isLost = false
  /** The uids of tasks that ran there, and that it ended because it left. */
  readonly abandoned: string[] = []
  readonly #options: AgentLinkOptions
  readonly #link: ReliableLink
  readonly #downSubject: string
  /** Messages with ends that came from this start of the agent, in this and in earlier uses. */
  #received = new NumberSet()
  readonly #recorded = new NumberSet()
  /** Those whose ends were given to the session, with their values. */
  readonly #taken = new NumberSet()
  /** Messages for an earlier start with objects that were not read: the agent keeps these. */
  readonly #unread = new Set<number>()
  #toldRecorded = 0
  #toldTaken = 0
  #untoldBytes = 0
  #earlierThrough = 0
  #expectedEnds = 0
  #missingThrough = 0
  #attachedMs = -Infinity
  #expectsEvents = true
  /** Ends that came before what their tasks told. */
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
        options.onReport(payload as AgentReport)
        if (this.#waitingEnds.length > 0) this.#takeWaitingEnds()
      },
      onRefused: options.onRefused,
    })
  }

  /**
   * The agent has answered; `received` are its messages that have come by now, `unread` those of
   * them with objects that were not read.
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
    this.hasToldEarlier = !isFirst
    this.#attachedMs = this.#options.clock.monotonicMs()
    this.endMessages = endMessages
    this.endsEpoch = endsEpoch
    this.#earlierThrough = isFirst ? endMessages : 0
    const missing = new Set(unrecorded)
    // A message may have come before the answer that was sent before it.
    const last = Math.max(endMessages, received.last)
    for (let number = 1; number <= last; number++) {
      const isLater = number > endMessages
      if (!isLater && !missing.has(number)) received.add(number)
      if (!received.has(number)) continue
      if ((isLater || missing.has(number)) && unread.has(number)) this.keep(number)
      else this.settled(number)
    }
    const first = unrecorded.reduce((least, number) => Math.min(least, number), endMessages + 1)
    this.#toldRecorded = first - 1
    this.#toldTaken = first - 1
    this.#missingThrough = endMessages
    this.#expectedEnds = endMessages
  }

  /** Takes ends when what their tasks told has come, or never will. */
  takeAfter(events: EventsMark | undefined, take: () => void): void {
    const isAwaited = this.#expectsEvents && events?.link === this.link
    if (events === undefined || !isAwaited || this.hasHeard(events)) return take()
    this.#link.askForMissing()
    this.#waitingEnds.push({ events, take })
  }

  /** Whether a message of this use of the agent has come. */
  hasHeard({ link, number }: EventsMark): boolean {
    return link === this.link && number <= this.#link.received
  }

  #takeWaitingEnds(): void {
    const waiting = this.#waitingEnds
    this.#waitingEnds = []
    for (const { events, take } of waiting) this.takeAfter(events, take)
  }

  /** What it tells from now on does not count: ends wait for nothing. */
  expectNoEvents(): void {
    this.#expectsEvents = false
    this.#takeWaitingEnds()
  }

  /** Whether a message tells ends from before this driver used the agent. */
  isEarlier(number: number): boolean {
    return number <= this.#earlierThrough
  }

  /** Whether messages with such ends have not come. */
  get isMissingEarlier(): boolean {
    return this.#received.through < this.#earlierThrough
  }

  /**
   * Called every half second: whether messages with ends have not come that were sent before the
   * last call. Later ones may be on their way.
   */
  isMissingEnds(): boolean {
    this.#missingThrough = this.#expectedEnds
    this.#expectedEnds = this.endMessages
    return this.#received.through < this.#missingThrough
  }

  /** Messages that it has not got and that the stream does not have; `false` if there is none. */
  askForMissing(): boolean {
    const from = this.#received.through + 1
    if (from > this.#missingThrough) return false
    this.#post({ kind: 'missing', from, to: this.#missingThrough })
    return true
  }

  /** The stream has lost what this message names. */
  askForValue(number: number): void {
    this.#post({ kind: 'missing', from: number, to: number })
  }

  /** When the agent's last message about the session came; its answer is the first. */
  get heardMs(): number {
    return Math.max(this.#attachedMs, this.#link.heardMs)
  }

  receive(subject: string, data: Uint8Array): void {
    this.#link.receive(subject, data)
  }

  /** Sends serialized jobs. */
  send(payload: Buffer): void {
    this.#link.send(this.#downSubject, payload)
  }

  /** Sent with all cancels of this turn. */
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
        const cut = why.slice(0, mostReasonLength)
        this.#postCut(references, (part) => ({ kind: 'cancel', jobs: part, reason: cut }))
      }
    })
  }

  /** Asks for jobs back that were sent before and not begun; returns for how many. */
  recall(most: number, beforeMs: number): number {
    const waiting = this.jobs
      .toArray()
      .filter(({ isStarted, sinceMs, group }) => !isStarted && sinceMs < beforeMs && !group)
      .slice(-most)
    const jobs = waiting.map(({ uid, wireAttempt }) => [uid, wireAttempt] as const)
    this.#postCut(jobs, (part) => ({ kind: 'recall', jobs: part }))
    return jobs.length
  }

  /** All ends of this message are recorded. */
  recorded(number: number): void {
    this.#recorded.add(number)
  }

  /** All ends of this message were given to the session. The agent need not wait for the tick. */
  taken(number: number, bytes: number): void {
    this.#taken.add(number)
    this.#untoldBytes += bytes
    if (this.#untoldBytes > mostUntoldBytes) this.#tellRecorded()
  }

  /** Nothing of this message will be recorded by this use of the agent. */
  settled(number: number): void {
    this.#taken.add(number)
    this.#recorded.add(number)
  }

  /** It names objects, and is for an earlier start: it is recorded when its task is. */
  keep(number: number): void {
    this.#taken.add(number)
    this.#unread.add(number)
  }

  /** Whether the agent can be asked for what this message names. */
  keeps(number: number): boolean {
    return this.#unread.has(number)
  }

  tick(): void {
    for (const number of this.#unread) {
      if (this.endMessages <= Math.max(number, this.#earlierThrough) + mostLater) continue
      this.#unread.delete(number)
      this.settled(number)
    }
    this.#tellRecorded()
    if (this.#waitingEnds.length > 0) this.#link.askForMissing()
    this.#link.tick()
  }

  resend(): void {
    this.#link.resend()
  }

  #tellRecorded(): void {
    const { through } = this.#recorded
    const { through: taken } = this.#taken
    this.#untoldBytes = 0
    if (through <= this.#toldRecorded && taken <= this.#toldTaken) return
    this.#toldRecorded = through
    this.#toldTaken = taken
    this.#post({ kind: 'recorded', through, taken })
  }

  #postCut(jobs: readonly JobReference[], toMessage: ReferenceMessage): void {
    const limitBytes = payloadLimit(this.#options.broker.maxPayload)
    for (const payload of encodeReferences(jobs, limitBytes, toMessage)) this.send(payload)
  }

  #post(message: DriverMessage): void {
    this.#link.send(this.#downSubject, encode(message))
  }
}

/** Jobs that are placed all at once. */
export interface DriverJobGroup extends JobGroup<DriverJob> {
  readonly jobs: DriverJob[]
  /** How many have no node. */
  unplaced: number
  /** Called once, with the node of each job. */
  readonly onPlaced: (nodes: readonly string[]) => void
}

/** A job of the session on its way through the cluster. */
export class DriverJob implements NumberedJob, PlacedJob, Indexed {
  setIndex = -1
  readonly index: number
  readonly job: Job
  readonly spec: TaskSpec
  readonly sequence: number
  readonly avoid: string | null
  /** Agents that do not allow it, as far as is known. Not changed while it waits. */
  excluded: Exclusion | null = null
  /** Begins with others; not placed again alone. */
  readonly group: DriverJobGroup | null
  /**
   * The attempt's number at the agents. It goes on from an earlier start of the session, whose
   * attempts this start does not count.
   */
  wireAttempt: number
  /** What the session has to know of attempts that an earlier start has made. */
  continued: ContinuedAttempt | null = null
  /** Where it is; `null` while it waits. */
  agent: AgentLink | null = null
  /** When the session has submitted it. */
  readonly addedMs: number
  /** When it was sent; while it waits, since when. */
  sinceMs: number
  /** When its attempt began, by the clock of this machine. */
  startedMs: number | null = null
  /** The same by the clock of its agent. */
  beganMs: number | null = null
  /** The time of its latest event. */
  toldSeconds = 0
  cancelReason: string | null = null
  /** Nodes that were lost while it may have been running there, untold. */
  moves = 0
  /** Its end has come: it is being reported, or its value is on the way. */
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
