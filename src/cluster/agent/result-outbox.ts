/** Sends the results of a session's attempts to its stream; keeps them until they are recorded. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, mapErrorTexts, toErrorRecord } from '../../foundation/error-record.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { type Broker, isNoRoom } from '../broker/broker.ts'
import type { ObjectToStore } from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import {
  type End,
  type EndedAttempt,
  type EndReport,
  halvesOfEvents,
  packEnds,
  toEnd,
  toWireEnd,
} from '../wire/ends.ts'
import { type Header, type Key, sealBytes, signAgain } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import type {
  AgentReport,
  Beat,
  DriverMessage,
  EndsMessage,
  EventsMark,
  HeldJob,
  ReportedEvents,
  WireEnd,
} from '../wire/messages.ts'
import type { HeldAttempts } from './held-attempt.ts'
import { type EndsData, type EndsStore, UnrecordedResults } from './unrecorded-results.ts'
import { LargeResults } from './large-results.ts'

export interface EndsOutboxOptions {
  readonly agent: string
  /** Identifies this outbox. Its messages are numbered from 1. */
  readonly epoch: number
  readonly key: () => Key
  readonly subject: string
  readonly broker: Broker
  readonly store: EndsStore
  readonly clock: Clock
  /** How many jobs may wait at the agent; sent with every message. */
  readonly ahead: () => number
  /** Whether the session is believed to continue, so that the stream still belongs to it. */
  readonly isDriverHeard: () => boolean
  /** Called before results are sent, to send events first. */
  readonly onFlush: () => void
  /** The last message with events, if the driver has not confirmed it. */
  readonly unconfirmedMark: () => EventsMark | undefined
  /** Replaces paths of this node in errors by those of the driver's machine. */
  readonly restorePaths: (text: string) => string
  /** Called for every failure to store a message. */
  readonly onProblem: (error: unknown) => void
  readonly onFailed: (error: unknown) => void
}

type StreamNews = Pick<Beat, 'agents' | 'lostStreams' | 'needsRoom'>
type HeldWork = Pick<HeldAttempts, 'workMs' | 'rate'>
type Recorded = Extract<DriverMessage, { kind: 'recorded' }>

/** Above this rate, results within `busyBatchMs` of the last message share the next one. */
const busyPerSecond = 2000
const busyBatchMs = 2
/** With many agents, each has few results per second, so they wait longer to share a message. */
const batchMsPerAgent = 1.2
const maxBatchMs = 80
/** While jobs wait at the agent, results are less urgent: the driver need not send jobs yet. */
const backlogBatchMs = 20
const appendMs = 5000
const retryMs = 500
/** After this time without progress, `settle` checks whether the stream still exists. */
const goneMs = 1000

export class ResultOutbox {
  readonly #options: EndsOutboxOptions
  #waiting: End[] = []
  #isScheduled = false
  #flushedMs = -Infinity
  #agents = 1
  #lostStreams = 0
  #sent = 0
  readonly #kept = new UnrecordedResults()
  #settled: PromiseWithResolvers<void> | null = null
  /** Why the broker does not store messages; `null` while it does. */
  #problem: unknown = null
  #isClosed = false
  #limit: { readonly ms: number; readonly fromMs: number } | null = null
  #progressedMs = -Infinity
  #undelivered = 0
  readonly #large: LargeResults

  constructor(options: EndsOutboxOptions) {
    this.#options = options
    this.#large = new LargeResults({
      objects: options.store.objects,
      isSmall: (end) => this.#isSmall(this.#serialize([end])),
    })
  }

  /** Whether the broker refuses to store messages, such as when its disk is full. */
  get isBlocked(): boolean {
    return this.#problem !== null
  }

  /** Whether there is no room for the results of further attempts. */
  get isFull(): boolean {
    return this.#kept.isFull
  }

  /** The state of this outbox that reports carry to the driver. */
  get state(): Pick<AgentReport, 'endMessages' | 'needsRoom'> {
    const needsRoom = [this.#problem, (this.#problem as Error | null)?.cause].some(isNoRoom)
    return { endMessages: this.#sent, needsRoom }
  }

  /** Numbers of the messages that no driver has recorded and that can still be sent again. */
  get unrecorded(): readonly number[] {
    return this.#kept.numbers
  }

  /**
   * If the value of the attempt still waits for storage, the attempt ends as canceled, without it.
   */
  cancel(uid: string, attempt: number, reason: string): void {
    this.#large.cancel(uid, attempt, reason)
  }

  /** Whether the result of this task can no longer be sent again. */
  hasGivenUp(uid: string): boolean {
    return this.#kept.hasGivenUp(uid)
  }

  /** Results that were not sent in a message yet. */
  get unsent(): readonly HeldJob[] {
    return [...this.#waiting, ...this.#large.pending].map((end) => {
      const { uid, attempt, beganMs, workerId } = end
      return { uid, attempt, beganMs, workerId }
    })
  }

  /**
   * Adds the result of an attempt, as the node's backend reported it. The last result that the
   * agent holds is sent immediately, because no other could share its message. `held` is the
   * agent's remaining work; the next message is sent before half of it is done.
   */
  add(attempt: EndedAttempt, report: EndReport, atMs: number, held: HeldWork): void {
    const toRecord = (error: unknown): ErrorRecord =>
      mapErrorTexts(toErrorRecord(error), this.#options.restorePaths)
    this.#waiting.push(toEnd(attempt, report, atMs, toRecord))
    const { workMs } = held
    if (workMs === 0) return this.#flush()
    if (this.#isScheduled) return
    const { clock } = this.#options
    const isBusy = (held.rate ?? 0) > busyPerSecond
    const batchMs = Math.max(this.#batchMs(isBusy), Math.min(backlogBatchMs, workMs / 2))
    const leftMs = batchMs - (clock.monotonicMs() - this.#flushedMs)
    // A single result is not delayed, not even for a turn of the event loop.
    if (leftMs <= 0 && !isBusy) return this.#flush()
    this.#isScheduled = true
    const flush = (): void => this.#flush()
    if (leftMs <= 0) clock.nextTurn(flush)
    else clock.after(leftMs, flush)
  }

  /** Stores events that the driver has not confirmed; called when the agent leaves. */
  addEvents(reports: readonly ReportedEvents[]): void {
    if (reports.length === 0) return
    this.#flush()
    const payload = encode({ ...this.#toMessage([]), reports })
    if (this.#isSmall(payload)) return this.#publish([], payload)
    for (const half of halvesOfEvents(reports)) this.addEvents(half)
  }

  /**
   * Adapts the batch time to the number of agents that send to the driver. After a lost stream,
   * sends recent messages again, because the server does not report such losses.
   */
  takeBeat({ agents, lostStreams, needsRoom }: StreamNews): void {
    this.#agents = agents
    if (needsRoom) this.#background(this.#options.store.makeRoom())
    if (lostStreams === this.#lostStreams) return
    this.#lostStreams = lostStreams
    this.resend()
  }

  get agents(): number {
    return this.#agents
  }

  #batchMs(isBusy: boolean): number {
    const idleMs = Math.min(maxBatchMs, this.#agents * batchMsPerAgent)
    return isBusy ? Math.max(busyBatchMs, idleMs) : idleMs
  }

  /**
   * Drops messages that the driver has recorded, and returns their tasks. The stream keeps them for
   * a later start of the driver until the session is closed, unless room is needed.
   */
  recorded({ through, taken, lost = [] }: Recorded): readonly string[] {
    this.#kept.taken(taken)
    return this.#kept.recorded(through, lost)
  }

  isRecorded({ epoch, number }: Pick<Header, 'epoch' | 'number'>): boolean {
    return epoch === this.#options.epoch && this.#kept.isRecorded(number)
  }

  /** Sends messages again that the server has lost after storing them. */
  sendAgain({ from, to }: Extract<DriverMessage, { kind: 'missing' }>): void {
    for (const message of this.#kept.takeLost(from, to)) this.#background(this.#storeAgain(message))
  }

  /**
   * Resolves when the stream has all results or is gone for good, or when the time limit is over.
   */
  async settle(isGone: () => Promise<boolean>): Promise<void> {
    const { clock } = this.#options
    const fromMs = clock.monotonicMs()
    this.#flush()
    while (this.unstoredEnds > 0) {
      this.#settled ??= Promise.withResolvers()
      const hasProgressed = await boundedWait(clock, goneMs, this.#settled.promise).then(
        () => true,
        () => false,
      )
      if (hasProgressed) continue
      if (await isGone().catch(() => false)) this.close()
      else if (this.#isLate(fromMs)) {
        this.#undelivered = this.unstoredEnds
        this.close()
      }
    }
  }

  #isLate(settlingFromMs: number): boolean {
    if (this.#limit === null) return false
    const fromMs = Math.max(settlingFromMs, this.#progressedMs, this.#limit.fromMs)
    return this.#options.clock.monotonicMs() - fromMs >= this.#limit.ms
  }

  /** The number of results that are not in the stream. */
  get unstoredEnds(): number {
    if (this.#isClosed) return 0
    return this.#kept.unstored.reduce((sum, { uids }) => sum + uids.length, this.#large.count)
  }

  /** Whether nothing more is sent, even if the stream does not have all results. */
  get isClosed(): boolean {
    return this.#isClosed
  }

  /** The number of results that were given up because of the time limit. */
  get undelivered(): number {
    return this.#undelivered
  }

  /** From now on `settle` gives up after this time without progress. */
  limitWait(ms: number): void {
    this.#limit = { ms, fromMs: this.#options.clock.monotonicMs() }
  }

  /** The broker does not store messages; sending is retried. */
  block(error: unknown): void {
    this.#options.onProblem(error)
    this.#problem = error
  }

  /** Stops sending, and drops all kept messages. */
  close(): void {
    this.#isClosed = true
    this.#kept.clear()
    this.#progressed()
  }

  /** Signs kept messages with the key of a new run, after the session's stream was lost. */
  signAgain(): void {
    const { key, subject } = this.#options
    for (const { data } of this.#kept.contents) signAgain(key(), subject, data)
  }

  /** After a disconnect, sends the messages again that are not in the stream. */
  resend(): void {
    for (const message of this.#kept.unstored) this.#background(this.#append(message))
  }

  #flush(): void {
    this.#isScheduled = false
    if (this.#waiting.length === 0) return
    this.#options.onFlush()
    this.#flushedMs = this.#options.clock.monotonicMs()
    const ends = this.#waiting
    this.#waiting = []
    this.#send(ends)
  }

  /** Halves a batch that is too large for a message. */
  #send(ends: readonly End[]): void {
    const [first] = ends
    if (first === undefined) return
    const payload = this.#serialize(ends)
    if (this.#isSmall(payload)) return this.#publish(ends, payload)
    if (ends.length === 1) return this.#background(this.#sendLarge(toWireEnd(first)))
    const middle = ends.length >> 1
    this.#send(ends.slice(0, middle))
    this.#send(ends.slice(middle))
  }

  #isSmall({ length }: Buffer): boolean {
    return length <= payloadLimit(this.#options.broker.maxPayload)
  }

  #publish(ends: readonly End[], payload: Buffer, objects: readonly ObjectToStore[] = []): void {
    if (this.#isClosed) return
    const { key, subject, epoch } = this.#options
    const number = ++this.#sent
    const data = sealBytes(key(), subject, { epoch, number, acknowledged: 0 }, payload)
    const message = { number, data, uids: ends.map(({ uid }) => uid), objects }
    this.#kept.add(message)
    this.#background(this.#append(message))
  }

  async #append(message: EndsData): Promise<void> {
    const { broker, subject, isDriverHeard } = this.#options
    const { number, data } = message
    // The client would send the message after the reconnect, when another run may own the stream.
    if (!broker.isConnected) return
    if (!isDriverHeard() && !(await this.#openStream(number))) return
    try {
      await broker.store.append(subject, data, appendMs)
      this.#problem = null
      if (!this.#kept.isUnstored(number)) return
      this.#kept.stored(number)
      this.#progressed()
    } catch (error) {
      if (!this.#kept.isUnstored(number)) return
      const hasRoom = isNoRoom(error) && (await this.#options.store.makeRoom())
      if (broker.isConnected && !hasRoom) this.block(error)
      if (!hasRoom) await sleep(this.#options.clock, retryMs)
      if (await this.#openStream(number)) this.#background(this.#append(message))
    }
  }

  /**
   * Waits while the stream belongs to another run, which accepts nothing until this agent has
   * signed its messages again. `false` if the message was stored or dropped meanwhile.
   */
  async #openStream(number: number): Promise<boolean> {
    const { store, clock } = this.#options
    for (; this.#kept.isUnstored(number); await sleep(clock, retryMs)) {
      if (await store.openStream().catch(() => true)) return true
    }
    return false
  }

  /** Stores a message again that the server has lost, with the objects that it refers to. */
  async #storeAgain(message: EndsData): Promise<void> {
    const { objects } = this.#options.store
    try {
      for (const object of message.objects) await objects.put(object)
    } catch {
      // Only `close` causes a rejection.
      return
    }
    await this.#append(message)
  }

  /**
   * Stores the parts that are too large, then sends the message. Waits while the broker refuses.
   */
  async #sendLarge(end: WireEnd): Promise<void> {
    const stored = await this.#large.store(end)
    if (stored?.isWhole === true) this.#problem = null
    if (stored !== null) this.#publish([stored.end], this.#serialize([stored.end]), stored.objects)
    this.#large.sent(end)
    this.#progressed()
  }

  #progressed(): void {
    this.#progressedMs = this.#options.clock.monotonicMs()
    this.#settled?.resolve()
    this.#settled = null
  }

  #serialize(all: readonly End[]): Buffer {
    return encode(this.#toMessage(all))
  }

  #background(work: Promise<unknown>): void {
    work.catch(this.#options.onFailed)
  }

  #toMessage(all: readonly End[]): EndsMessage {
    const { agent, ahead, unconfirmedMark } = this.#options
    const events = unconfirmedMark()
    const message = { kind: 'ends', agent, ahead: ahead(), ...packEnds(all) } as const
    return events === undefined ? message : { ...message, events }
  }
}
