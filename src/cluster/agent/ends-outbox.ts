/** Ends of a session's jobs on their way to its stream. Kept until the driver has recorded them. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, mapErrorTexts, toErrorRecord } from '../../foundation/error-record.ts'
import { boundedWait } from '../../foundation/promises.ts'
import { type Broker, isNoRoom } from '../broker/broker.ts'
import type { ObjectToStore, StoredObjects } from '../broker/stored-objects.ts'
import { encode } from '../wire/codec.ts'
import {
  type End,
  type EndedAttempt,
  type EndReport,
  halvesOfTold,
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
  ToldEvents,
  WireEnd,
} from '../wire/messages.ts'
import type { HeldAttempts } from './held-attempt.ts'
import { type EndsData, KeptEnds } from './kept-ends.ts'
import { LargeEnds } from './large-ends.ts'

/** Where ends are stored. */
export interface EndsStore {
  /** For values that are too large for a message. */
  readonly objects: StoredObjects
  /** Creates the stream again, if the server has lost it. `false`: it has none for this run. */
  openStream(): Promise<boolean>
  /** Removes what the stream need not have; `false` if there is no such thing. */
  makeRoom(): Promise<boolean>
}

export interface EndsOutboxOptions {
  readonly agent: string
  /** Names this outbox: its messages are counted from 1. */
  readonly epoch: number
  readonly key: () => Key
  readonly subject: string
  readonly broker: Broker
  readonly store: EndsStore
  readonly clock: Clock
  /** How many jobs may wait at the agent; sent with every message. */
  readonly ahead: () => number
  /** Whether the session goes on, as far as is known: its stream is there, and its own. */
  readonly isDriverHeard: () => boolean
  /** Called before ends are sent. */
  readonly onFlush: () => void
  /** What was told before and may not have come. */
  readonly untoldEvents: () => EventsMark | undefined
  /** For errors: the paths of the sender instead of those of this node. */
  readonly restorePaths: (text: string) => string
  /** The broker does not store what is sent, and why; called for every failure. */
  readonly onProblem: (error: unknown) => void
}

type StreamNews = Pick<Beat, 'agents' | 'lostStreams' | 'needsRoom'>
type HeldWork = Pick<HeldAttempts, 'workMs' | 'rate'>
type Recorded = Extract<DriverMessage, { kind: 'recorded' }>

/** Above this rate, ends that come within this time of the last message share the next one. */
const busyPerSecond = 2000
const busyBatchMs = 2
/** With many agents each of them has few ends: then they wait longer to share a message. */
const batchMsPerAgent = 1.2
const longestBatchMs = 80
/** With jobs that wait at the agent an end is not urgent: its driver need not send others yet. */
const backlogBatchMs = 20
const appendMs = 5000
const retryMs = 500
/** Without progress for this long it is asked whether the stream is gone. */
const goneMs = 1000

export class EndsOutbox {
  readonly #options: EndsOutboxOptions
  #waiting: End[] = []
  #isScheduled = false
  #flushedMs = -Infinity
  #agents = 1
  #lostStreams = 0
  #sent = 0
  readonly #kept = new KeptEnds()
  #settled: PromiseWithResolvers<void> | null = null
  /** Why the broker does not store messages. */
  #problem: unknown = null
  #isClosed = false
  #limit: { readonly ms: number; readonly fromMs: number } | null = null
  #progressedMs = -Infinity
  #undelivered = 0
  readonly #large: LargeEnds

  constructor(options: EndsOutboxOptions) {
    this.#options = options
    this.#large = new LargeEnds({
      objects: options.store.objects,
      isSmall: (end) => this.#isSmall(this.#serialize([end])),
    })
  }

  /** Whether the broker refuses to store messages, such as when its disk is full. */
  get isBlocked(): boolean {
    return this.#problem !== null
  }

  /** Whether there is no room for the ends of anything that is begun now. */
  get isFull(): boolean {
    return this.#kept.isFull
  }

  /** As the driver is told of it. */
  get state(): Pick<AgentReport, 'endMessages' | 'needsRoom'> {
    const needsRoom = [this.#problem, (this.#problem as Error | null)?.cause].some(isNoRoom)
    return { endMessages: this.#sent, needsRoom }
  }

  /** Messages whose ends no driver has recorded, and which can be sent again. */
  get unrecorded(): readonly number[] {
    return this.#kept.numbers
  }

  /** An end whose value waits for room in the broker is sent without it, as canceled. */
  cancel(uid: string, attempt: number, reason: string): void {
    this.#large.cancel(uid, attempt, reason)
  }

  /** Whether the end of this task cannot be sent again. */
  hasGivenUp(uid: string): boolean {
    return this.#kept.hasGivenUp(uid)
  }

  /** Ends that no message has yet. */
  get untold(): readonly HeldJob[] {
    return [...this.#waiting, ...this.#large.pending].map((end) => {
      const { uid, attempt, beganMs, workerId } = end
      return { uid, attempt, beganMs, workerId }
    })
  }

  /**
   * The end of an attempt, as the node's backend has reported it. The last one that the agent holds
   * is sent at once: nothing is left that could share its message. `held` is the agent's other
   * work; the next message comes before half of it is over.
   */
  add(attempt: EndedAttempt, report: EndReport, atMs: number, held: HeldWork): void {
    this.#waiting.push(toEnd(attempt, report, atMs, (error) => this.#toRecord(error)))
    const { workMs } = held
    if (workMs === 0) return this.#flush()
    if (this.#isScheduled) return
    const { clock } = this.#options
    const isBusy = (held.rate ?? 0) > busyPerSecond
    const batchMs = Math.max(this.#batchMs(isBusy), Math.min(backlogBatchMs, workMs / 2))
    const leftMs = batchMs - (clock.monotonicMs() - this.#flushedMs)
    // A lone end is not held back, not even for a turn of the loop.
    if (leftMs <= 0 && !isBusy) return this.#flush()
    this.#isScheduled = true
    const flush = (): void => this.#flush()
    if (leftMs <= 0) clock.nextTurn(flush)
    else clock.after(leftMs, flush)
  }

  /** Events that the driver may not have, for it or for a later start: the agent leaves. */
  addEvents(told: readonly ToldEvents[]): void {
    if (told.length === 0) return
    this.#flush()
    const payload = encode({ ...this.#toMessage([]), told })
    if (this.#isSmall(payload)) return this.#publish([], payload)
    for (const half of halvesOfTold(told)) this.addEvents(half)
  }

  /**
   * Says how many agents the session has: the driver takes a message of each of them. A stream that
   * was lost does not have what was sent meanwhile; the server tells nobody.
   */
  takeBeat({ agents, lostStreams, needsRoom }: StreamNews): void {
    this.#agents = agents
    if (needsRoom) void this.#options.store.makeRoom()
    if (lostStreams === this.#lostStreams) return
    this.#lostStreams = lostStreams
    this.resend()
  }

  get agents(): number {
    return this.#agents
  }

  #batchMs(isBusy: boolean): number {
    const idleMs = Math.min(longestBatchMs, this.#agents * batchMsPerAgent)
    return isBusy ? Math.max(busyBatchMs, idleMs) : idleMs
  }

  /**
   * What the driver has recorded is not kept here. Returns the tasks. The stream keeps the messages
   * until the session is closed, for a later start of the driver, unless it lacks the room.
   */
  recorded({ through, taken }: Recorded): readonly string[] {
    this.#kept.taken(taken)
    return this.#kept.recorded(through)
  }

  isRecorded({ epoch, number }: Pick<Header, 'epoch' | 'number'>): boolean {
    return epoch === this.#options.epoch && this.#kept.isRecorded(number)
  }

  /** The driver misses messages that the stream had: the server has lost them. */
  sendAgain({ from, to }: Extract<DriverMessage, { kind: 'missing' }>): void {
    for (const message of this.#kept.takeLost(from, to)) void this.#storeAgain(message)
  }

  /** Resolves when the stream has everything or is gone for good, or it was waited long enough. */
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

  /** Ends that the stream does not have. */
  get unstoredEnds(): number {
    if (this.#isClosed) return 0
    return this.#kept.unstored.reduce((sum, { uids }) => sum + uids.length, this.#large.count)
  }

  /** It sends nothing more, whether the stream has everything or not. */
  get isClosed(): boolean {
    return this.#isClosed
  }

  /** How many ends were given up because of the limit. */
  get undelivered(): number {
    return this.#undelivered
  }

  /** From now on `settle` gives up when the stream takes nothing for this long. */
  limitWait(ms: number): void {
    this.#limit = { ms, fromMs: this.#options.clock.monotonicMs() }
  }

  /** The broker does not store what it is sent. */
  block(error: unknown): void {
    this.#options.onProblem(error)
    this.#problem = error
  }

  /** Sends nothing more, and forgets what is kept. */
  close(): void {
    this.#isClosed = true
    this.#kept.clear()
    this.#progressed()
  }

  /** The key is another one: another run of the session begins, which has lost its stream. */
  signAgain(): void {
    const { key, subject } = this.#options
    for (const { data } of this.#kept.contents) signAgain(key(), subject, data)
  }

  /** Sends again what the stream does not have: after a connection was down. */
  resend(): void {
    for (const message of this.#kept.unstored) void this.#append(message)
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

  /** Halves what is too large for a message. */
  #send(ends: readonly End[]): void {
    const [first] = ends
    if (first === undefined) return
    const payload = this.#serialize(ends)
    if (this.#isSmall(payload)) return this.#publish(ends, payload)
    if (ends.length === 1) return void this.#sendLarge(toWireEnd(first))
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
    void this.#append(message)
  }

  async #append(message: EndsData): Promise<void> {
    const { broker, subject, isDriverHeard } = this.#options
    const { number, data } = message
    // What is published now would be sent with the next connection, whoever has the stream then.
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
      if (await this.#openStream(number)) void this.#append(message)
    }
  }

  /**
   * Waits while the stream is that of another run, which takes nothing before this agent has signed
   * it again. `false` when the message is stored or given up meanwhile.
   */
  async #openStream(number: number): Promise<boolean> {
    const { store, clock } = this.#options
    for (; this.#kept.isUnstored(number); await sleep(clock, retryMs)) {
      if (await store.openStream().catch(() => true)) return true
    }
    return false
  }

  /** A message that the server has lost, and with it what it names. */
  async #storeAgain(message: EndsData): Promise<void> {
    const { objects } = this.#options.store
    try {
      for (const object of message.objects) await objects.put(object)
    } catch {
      // Closed.
      return
    }
    await this.#append(message)
  }

  /** What is too large for a message is stored before. Waits while the broker does not take it. */
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

  #toRecord(error: unknown): ErrorRecord {
    return mapErrorTexts(toErrorRecord(error), this.#options.restorePaths)
  }

  #toMessage(all: readonly End[]): EndsMessage {
    const { agent, ahead, untoldEvents } = this.#options
    const events = untoldEvents()
    const message = { kind: 'ends', agent, ahead: ahead(), ...packEnds(all) } as const
    return events === undefined ? message : { ...message, events }
  }
}
