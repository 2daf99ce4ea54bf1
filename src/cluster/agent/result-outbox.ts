/** Sends results of a session to its stream, and keeps them until the driver has recorded them. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, mapErrorTexts, toErrorRecord } from '../../foundation/error-record.ts'
import { fulfillsWithin } from '../../foundation/promises.ts'
import { type Broker, isNoRoom } from '../broker/broker.ts'
import type { ObjectToStore, StoredObjects } from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import {
  type AttemptResult,
  type EndedAttempt,
  type ResultReport,
  splitEvents,
  packResults,
  toResult,
  toWireResult,
} from '../wire/results.ts'
import { type Header, type Key, sealBytes, replaceSignature } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import type {
  AgentReport,
  Heartbeat,
  DriverMessage,
  ResultsMessage,
  EventsMark,
  HeldJob,
  ReportedEvents,
  WireResult,
} from '../wire/messages.ts'
import type { HeldAttempts } from './held-attempt.ts'
import { type SealedResults, UnrecordedResults } from '../protocol/unrecorded-results.ts'
import { LargeResults } from './large-results.ts'

export interface ResultStore {
  readonly objects: StoredObjects
  /** Recreates the stream if the server has lost it. Returns `false` if this run has no stream. */
  openStream(): Promise<boolean>
  /** Removes data that the stream no longer needs. Returns `false` if nothing was removed. */
  makeRoom(): Promise<boolean>
}

export interface ResultOutboxOptions {
  readonly agent: string
  /** Identifies this outbox. The messages of an outbox are numbered from 1. */
  readonly epoch: number
  readonly key: () => Key
  readonly subject: string
  readonly broker: Broker
  readonly store: ResultStore
  readonly clock: Clock
  readonly ahead: () => number
  /** Whether the driver was heard recently, so that the stream still belongs to this session. */
  readonly isDriverHeard: () => boolean
  /** Called before results are sent, so that pending events can be sent first. */
  readonly onFlush: () => void
  readonly unconfirmedMark: () => EventsMark | undefined
  readonly restorePaths: (text: string) => string
  readonly onProblem: (error: unknown) => void
  readonly onFailed: (error: unknown) => void
}

type HeartbeatNews = Pick<Heartbeat, 'agents' | 'lostStreams' | 'needsRoom'>
type HeldWork = Pick<HeldAttempts, 'workMs' | 'rate'>
type Recorded = Extract<DriverMessage, { kind: 'recorded' }>

/** Above this rate of completions per second, messages are at least `busyBatchMs` apart. */
const busyRate = 2000
const busyBatchMs = 2
/**
 * The minimum time between messages, multiplied by the session's number of agents. If there are
 * many agents, each has few results per second, so its results wait longer to share a message.
 */
const batchMsPerAgent = 1.2
const maxBatchMs = 80
/**
 * The time between messages while jobs wait at the agent. Results are then less urgent, because the
 * driver need not send jobs yet.
 */
const backlogBatchMs = 20
const appendTimeoutMs = 5000
const retryDelayMs = 500
/** After this time without progress, `settle` checks whether the stream still exists. */
const streamCheckMs = 1000

export class ResultOutbox {
  readonly #options: ResultOutboxOptions
  #waiting: AttemptResult[] = []
  #isScheduled = false
  #flushedMs = -Infinity
  #agents = 1
  #lostStreams = 0
  #sent = 0
  readonly #unrecorded = new UnrecordedResults()
  #settled: PromiseWithResolvers<void> | null = null
  #problem: unknown = null
  #isClosed = false
  #limit: { readonly ms: number; readonly fromMs: number } | null = null
  #progressMs = -Infinity
  #undelivered = 0
  readonly #large: LargeResults

  constructor(options: ResultOutboxOptions) {
    this.#options = options
    this.#large = new LargeResults({
      objects: options.store.objects,
      fitsMessage: (end) => this.#fitsMessage(this.#serialize([end])),
    })
  }

  get isBlocked(): boolean {
    return this.#problem !== null
  }

  get isFull(): boolean {
    return this.#unrecorded.isFull
  }

  get state(): Pick<AgentReport, 'endMessages' | 'needsRoom'> {
    const needsRoom = [this.#problem, (this.#problem as Error | null)?.cause].some(isNoRoom)
    return { endMessages: this.#sent, needsRoom }
  }

  /** The numbers of messages that can still be resent and that no driver has recorded. */
  get unrecorded(): readonly number[] {
    return this.#unrecorded.numbers
  }

  cancel(uid: string, attempt: number, reason: string): void {
    this.#large.cancel(uid, attempt, reason)
  }

  hasGivenUp(uid: string): boolean {
    return this.#unrecorded.isDropped(uid)
  }

  get unsent(): readonly HeldJob[] {
    return [...this.#waiting, ...this.#large.pending].map((end) => {
      const { uid, attempt, beganMs, workerId } = end
      return { uid, attempt, beganMs, workerId }
    })
  }

  /**
   * Sends the result immediately if the agent holds no other work. Otherwise the result waits so
   * that several results share a message. It waits for the batch time, or at most half of the time
   * that the remaining work (`held`) needs.
   */
  add(attempt: EndedAttempt, report: ResultReport, atMs: number, held: HeldWork): void {
    const toRecord = (error: unknown): ErrorRecord =>
      mapErrorTexts(toErrorRecord(error), this.#options.restorePaths)
    this.#waiting.push(toResult(attempt, report, atMs, toRecord))
    const { workMs } = held
    if (workMs === 0) return this.#flush()
    if (this.#isScheduled) return
    const { clock } = this.#options
    const isBusy = (held.rate ?? 0) > busyRate
    const batchMs = Math.max(this.#batchMs(isBusy), Math.min(backlogBatchMs, workMs / 2))
    const leftMs = batchMs - (clock.monotonicMs() - this.#flushedMs)
    // The last message was long ago, so a single result is sent immediately.
    if (leftMs <= 0 && !isBusy) return this.#flush()
    this.#isScheduled = true
    const flush = (): void => this.#flush()
    if (leftMs <= 0) clock.nextTurn(flush)
    else clock.after(leftMs, flush)
  }

  addEvents(reports: readonly ReportedEvents[]): void {
    if (reports.length === 0) return
    this.#flush()
    const payload = encode({ ...this.#toMessage([]), reports })
    if (this.#fitsMessage(payload)) return this.#publish([], payload)
    for (const half of splitEvents(reports)) this.addEvents(half)
  }

  /** Makes room in a full store. Resends unstored messages after the loss of a stream. */
  handleHeartbeat({ agents, lostStreams, needsRoom }: HeartbeatNews): void {
    this.#agents = agents
    if (needsRoom) this.#runInBackground(this.#options.store.makeRoom())
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
   * Drops recorded messages, and returns their tasks. The stream keeps these messages for a
   * restarted driver until room is needed.
   */
  markRecorded({ through, taken, lost = [] }: Recorded): readonly string[] {
    this.#unrecorded.markReceived(taken)
    return this.#unrecorded.markRecorded(through, lost)
  }

  isRecorded({ epoch, number }: Pick<Header, 'epoch' | 'number'>): boolean {
    return epoch === this.#options.epoch && this.#unrecorded.isRecorded(number)
  }

  resendMissing({ from, to }: Extract<DriverMessage, { kind: 'missing' }>): void {
    for (const message of this.#unrecorded.markLost(from, to))
      this.#runInBackground(this.#restore(message))
  }

  /** Resolves when the stream has all results or is gone for good, or at the time limit. */
  async settle(isGone: () => Promise<boolean>): Promise<void> {
    const { clock } = this.#options
    const fromMs = clock.monotonicMs()
    this.#flush()
    while (this.unstoredResults > 0) {
      this.#settled ??= Promise.withResolvers()
      if (await fulfillsWithin(clock, streamCheckMs, this.#settled.promise)) continue
      if (await isGone().catch(() => false)) this.close()
      else if (this.#isLate(fromMs)) {
        this.#undelivered = this.unstoredResults
        this.close()
      }
    }
  }

  #isLate(settlingFromMs: number): boolean {
    if (this.#limit === null) return false
    const fromMs = Math.max(settlingFromMs, this.#progressMs, this.#limit.fromMs)
    return this.#options.clock.monotonicMs() - fromMs >= this.#limit.ms
  }

  get unstoredResults(): number {
    if (this.#isClosed) return 0
    const { unstored } = this.#unrecorded
    return unstored.reduce((sum, { uids }) => sum + uids.length, this.#large.pending.length)
  }

  get isClosed(): boolean {
    return this.#isClosed
  }

  get undelivered(): number {
    return this.#undelivered
  }

  /** Makes `settle` give up after this time without progress. */
  setSettleTimeout(ms: number): void {
    this.#limit = { ms, fromMs: this.#options.clock.monotonicMs() }
  }

  block(error: unknown): void {
    this.#options.onProblem(error)
    this.#problem = error
  }

  close(): void {
    this.#isClosed = true
    this.#unrecorded.clear()
    this.#noteProgress()
  }

  /** Signs the kept messages with the key of a new run, after the stream was lost. */
  updateSignatures(): void {
    const { key, subject } = this.#options
    for (const { data } of this.#unrecorded.contents) replaceSignature(key(), subject, data)
  }

  resend(): void {
    for (const message of this.#unrecorded.unstored) this.#runInBackground(this.#append(message))
  }

  #flush(): void {
    this.#isScheduled = false
    if (this.#waiting.length === 0) return
    this.#options.onFlush()
    this.#flushedMs = this.#options.clock.monotonicMs()
    const results = this.#waiting
    this.#waiting = []
    this.#send(results)
  }

  #send(results: readonly AttemptResult[]): void {
    const [first] = results
    if (first === undefined) return
    const payload = this.#serialize(results)
    if (this.#fitsMessage(payload)) return this.#publish(results, payload)
    if (results.length === 1) return this.#runInBackground(this.#sendLarge(toWireResult(first)))
    const middle = results.length >> 1
    this.#send(results.slice(0, middle))
    this.#send(results.slice(middle))
  }

  #fitsMessage({ length }: Buffer): boolean {
    return length <= payloadLimit(this.#options.broker.maxPayload)
  }

  #publish(
    results: readonly AttemptResult[],
    payload: Buffer,
    objects: readonly ObjectToStore[] = [],
  ): void {
    if (this.#isClosed) return
    const { key, subject, epoch } = this.#options
    const number = ++this.#sent
    const data = sealBytes(key(), subject, { epoch, number, acknowledged: 0 }, payload)
    const message = { number, data, uids: results.map(({ uid }) => uid), objects }
    this.#unrecorded.add(message)
    this.#runInBackground(this.#append(message))
  }

  async #append(message: SealedResults): Promise<void> {
    const { broker, subject, isDriverHeard } = this.#options
    const { number, data } = message
    // The NATS client would send the message after the reconnect, perhaps to another run's stream.
    if (!broker.isConnected) return
    if (!isDriverHeard() && !(await this.#openStream(number))) return
    try {
      await broker.store.append(subject, data, appendTimeoutMs)
      this.#problem = null
      if (!this.#unrecorded.isUnstored(number)) return
      this.#unrecorded.markStored(number)
      this.#noteProgress()
    } catch (error) {
      const hasRoom = isNoRoom(error) && (await this.#options.store.makeRoom())
      // In the meantime, `resend` may have stored the message.
      if (!this.#unrecorded.isUnstored(number)) return
      if (broker.isConnected && !hasRoom) this.block(error)
      if (!hasRoom) await sleep(this.#options.clock, retryDelayMs)
      if (await this.#openStream(number)) this.#runInBackground(this.#append(message))
    }
  }

  /**
   * Waits while the stream belongs to another run. Returns `false` if the message was stored or
   * dropped in the meantime.
   */
  async #openStream(number: number): Promise<boolean> {
    const { store, clock } = this.#options
    for (; this.#unrecorded.isUnstored(number); await sleep(clock, retryDelayMs)) {
      if (await store.openStream().catch(() => true)) return true
    }
    return false
  }

  async #restore(message: SealedResults): Promise<void> {
    const { objects } = this.#options.store
    try {
      for (const object of message.objects) await objects.put(object)
    } catch {
      // `put` rejects only after `close`.
      return
    }
    await this.#append(message)
  }

  async #sendLarge(result: WireResult): Promise<void> {
    const stored = await this.#large.store(result)
    if (stored?.isComplete === true) this.#problem = null
    if (stored !== null)
      this.#publish([stored.result], this.#serialize([stored.result]), stored.objects)
    this.#large.markSent(result)
    this.#noteProgress()
  }

  #noteProgress(): void {
    this.#progressMs = this.#options.clock.monotonicMs()
    this.#settled?.resolve()
    this.#settled = null
  }

  #serialize(all: readonly AttemptResult[]): Buffer {
    return encode(this.#toMessage(all))
  }

  #runInBackground(work: Promise<unknown>): void {
    work.catch(this.#options.onFailed)
  }

  #toMessage(all: readonly AttemptResult[]): ResultsMessage {
    const { agent, ahead, unconfirmedMark } = this.#options
    const events = unconfirmedMark()
    const message = { kind: 'ends', agent, ahead: ahead(), ...packResults(all) } as const
    return events === undefined ? message : { ...message, events }
  }
}
