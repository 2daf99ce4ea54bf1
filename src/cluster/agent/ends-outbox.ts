/** Ends of a session's jobs on their way to its stream. Kept until the stream has them. */

import { type Clock, sleep } from '../../foundation/clock.ts'
import { type ErrorRecord, mapErrorTexts, toErrorRecord } from '../../foundation/error-record.ts'
import { ResultNotSerializableError } from '../../foundation/task-errors.ts'
import type { TaskReport } from '../../backends/backend.ts'
import type { Broker } from '../broker/broker.ts'
import { storeObject } from '../broker/stored-object.ts'
import { encode } from '../wire/codec.ts'
import { type Key, sealBytes } from '../wire/envelope.ts'
import { payloadLimit } from '../wire/job-batches.ts'
import type { EndsMessage, WireCompletion, WireEnd } from '../wire/messages.ts'
import { expectPortable } from '../wire/portable.ts'

export interface EndsOutboxOptions {
  readonly agent: string
  /** Names this outbox: its messages are counted from 1. */
  readonly epoch: number
  readonly key: Key
  readonly subject: string
  readonly stream: string
  readonly broker: Broker
  readonly clock: Clock
  /** How many jobs may wait at the agent; sent with every message. */
  readonly ahead: () => number
  /** Creates the stream again, if the server has lost it. */
  readonly openStream: () => Promise<unknown>
  /** Called before ends are sent. */
  readonly onFlush: () => void
  /** For errors: the paths of the sender instead of those of this node. */
  readonly restorePaths: (text: string) => string
  /** The broker does not store what is sent, and why; called for every failure. */
  readonly onProblem: (error: unknown) => void
}

type End = WireCompletion | WireEnd
type EndReport = Exclude<TaskReport, { kind: 'start' }>

interface EndedAttempt {
  readonly uid: string
  readonly attempt: number
  readonly beganMs: number | null
  readonly workerId: string | null
}

interface Message {
  readonly number: number
  /** Kept until the stream has it. */
  readonly data: Buffer
  /** The tasks whose ends it tells. */
  readonly uids: readonly string[]
}

/** Above this rate, ends that come within this time of the last message share the next one. */
const busyPerSecond = 2000
const busyBatchMs = 2
/** With many agents each of them has few ends: then they wait longer to share a message. */
const batchMsPerAgent = 0.15
const appendMs = 5000
const retryMs = 500
/** How long the rate of ends is averaged over. */
const rateMs = 50
const staleMs = 1000

export class EndsOutbox {
  readonly #options: EndsOutboxOptions
  #waiting: End[] = []
  #isScheduled = false
  #flushedMs = -Infinity
  #agents = 1
  #sent = 0
  /** Messages that the stream does not have yet. */
  readonly #unstored = new Map<number, Message>()
  /** Messages that the stream has and that are not recorded yet. */
  #stored: Omit<Message, 'data'>[] = []
  #settled: PromiseWithResolvers<void> | null = null
  #isBlocked = false
  #isGone: () => Promise<boolean> = () => Promise.resolve(false)
  /** Values on their way to the object store. */
  #uploads = 0

  #rateFromMs: number
  #rateCount = 0
  #rate: number | null = null

  constructor(options: EndsOutboxOptions) {
    this.#options = options
    this.#rateFromMs = options.clock.monotonicMs()
  }

  /** Ends per second, lately; `null` before the first measurement. */
  get rate(): number | null {
    // A burst that is over counts no more.
    if (this.#options.clock.monotonicMs() - this.#rateFromMs > staleMs) this.#measureRate()
    return this.#rate
  }

  /** Whether the broker refuses to store messages, such as when its disk is full. */
  get isBlocked(): boolean {
    return this.#isBlocked
  }

  /** How many messages were sent. */
  get messages(): number {
    return this.#sent
  }

  /** Messages whose ends no driver has recorded. */
  get unrecorded(): readonly number[] {
    return [...this.#unstored.keys(), ...this.#stored.map(({ number }) => number)]
  }

  /** The end of an attempt, as the node's backend has reported it. */
  add(attempt: EndedAttempt, report: EndReport, atMs: number): void {
    this.#updateRate()
    this.#waiting.push(toEnd(attempt, report, atMs, (error) => this.#toRecord(error)))
    if (this.#isScheduled) return
    const { clock } = this.#options
    const leftMs = this.#batchMs - (clock.monotonicMs() - this.#flushedMs)
    // A lone end is not held back, not even for a turn of the loop.
    if (leftMs <= 0 && !this.#isBusy) return this.#flush()
    this.#isScheduled = true
    const flush = (): void => this.#flush()
    if (leftMs <= 0) clock.nextTurn(flush)
    else clock.after(leftMs, flush)
  }

  /** How many agents the session has: the driver takes a message of each of them. */
  setAgents(count: number): void {
    this.#agents = count
  }

  get #batchMs(): number {
    const idleMs = this.#agents * batchMsPerAgent
    return this.#isBusy ? Math.max(busyBatchMs, idleMs) : idleMs
  }

  get #isBusy(): boolean {
    return (this.#rate ?? 0) > busyPerSecond
  }

  /**
   * The driver has recorded all ends in messages up to this number. Returns their tasks. The stream
   * keeps the messages until the session is closed, for a later start of the driver.
   */
  recorded(through: number): readonly string[] {
    const isDone = ({ number }: Omit<Message, 'data'>): boolean => number <= through
    const done = this.#stored.filter(isDone)
    this.#stored = this.#stored.filter((message) => !isDone(message))
    return done.flatMap(({ uids }) => uids)
  }

  /** Resolves when the stream has everything, or is gone for good. */
  async settle(isGone: () => Promise<boolean>): Promise<void> {
    this.#isGone = isGone
    this.#flush()
    while (this.#unstored.size > 0 || this.#uploads > 0) {
      this.#settled ??= Promise.withResolvers()
      await this.#settled.promise
    }
  }

  /** Sends again what the stream does not have: after a connection was down. */
  resend(): void {
    for (const message of this.#unstored.values()) void this.#append(message)
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
    if (payload.length <= payloadLimit(this.#options.broker.maxPayload)) {
      return this.#publish(ends, payload)
    }
    if (ends.length === 1) return void this.#sendLarge(toWireEnd(first))
    const middle = ends.length >> 1
    this.#send(ends.slice(0, middle))
    this.#send(ends.slice(middle))
  }

  #publish(ends: readonly End[], payload: Buffer): void {
    const { key, subject, epoch } = this.#options
    const number = ++this.#sent
    const data = sealBytes(key, subject, { epoch, number, acknowledged: 0 }, payload)
    const message = { number, data, uids: ends.map(uidOf) }
    this.#unstored.set(number, message)
    void this.#append(message)
  }

  async #append(message: Message): Promise<void> {
    const { broker, subject, clock, openStream, onProblem } = this.#options
    const { number, data } = message
    try {
      await broker.store.append(subject, data, appendMs)
      this.#isBlocked = false
      if (!this.#unstored.delete(number)) return
      this.#stored.push({ number, uids: message.uids })
      this.#progressed()
    } catch (error) {
      if (!this.#unstored.has(number)) return
      if (broker.isConnected) {
        onProblem(error)
        this.#isBlocked = true
      }
      await sleep(clock, retryMs)
      if (!this.#unstored.has(number)) return
      if (await this.#isGone().catch(() => false)) this.#unstored.clear()
      if (!this.#unstored.has(number)) return this.#progressed()
      await openStream().catch(() => {})
      void this.#append(message)
    }
  }

  async #sendLarge(end: WireEnd): Promise<void> {
    const { broker, stream } = this.#options
    const { uid, attempt, outcome } = end
    if (outcome.kind !== 'complete') return this.#sendLargeFailure(end)
    this.#uploads++
    let sent: WireEnd
    try {
      const prefix = `${uid}/${attempt}/value`
      const object = await storeObject(broker.store, stream, prefix, encode(outcome.value))
      sent = { ...end, outcome: { kind: 'complete-large', object } }
    } catch (error) {
      const failure = { kind: 'fail', error: toErrorRecord(error), isThrown: false } as const
      sent = { ...end, outcome: failure }
    }
    this.#publish([sent], this.#serialize([sent]))
    this.#uploads--
    this.#progressed()
  }

  /** The output of a program goes through the object store; an error is cut if it must be. */
  async #sendLargeFailure(end: WireEnd): Promise<void> {
    const { broker, stream } = this.#options
    const { stdout, stderr, ...facts } = end.facts ?? {}
    let sent: WireEnd = { ...end, facts }
    this.#uploads++
    if (stdout !== undefined) {
      try {
        const prefix = `${end.uid}/${end.attempt}/output`
        const data = encode({ stdout, stderr })
        sent = { ...sent, outputObject: await storeObject(broker.store, stream, prefix, data) }
      } catch (error) {
        this.#options.onProblem(error)
      }
    }
    const payload = this.#serialize([sent])
    const isSmall = payload.length <= payloadLimit(broker.maxPayload)
    const short = isSmall ? sent : cutOff(sent)
    this.#publish([short], isSmall ? payload : this.#serialize([short]))
    this.#uploads--
    this.#progressed()
  }

  #updateRate(): void {
    // Reading the clock costs more than counting.
    if (++this.#rateCount % 16 !== 1) return
    const passedMs = this.#options.clock.monotonicMs() - this.#rateFromMs
    if (passedMs >= rateMs) this.#measureRate()
  }

  #measureRate(): void {
    const nowMs = this.#options.clock.monotonicMs()
    const passedMs = nowMs - this.#rateFromMs
    // Without a single end nothing is known about the next tasks.
    if (this.#rate !== null || this.#rateCount > 0) this.#rate = (this.#rateCount * 1000) / passedMs
    this.#rateCount = 0
    this.#rateFromMs = nowMs
  }

  #progressed(): void {
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
    const completions: WireCompletion[] = []
    const ends: WireEnd[] = []
    for (const end of all) {
      if (isCompletion(end)) completions.push(end)
      else ends.push(end)
    }
    const { agent, ahead } = this.#options
    return { kind: 'ends', agent, ahead: ahead(), completions, ends }
  }
}

/** A value that cannot be sent is a failure. */
function toEnd(
  attempt: EndedAttempt,
  report: EndReport,
  atMs: number,
  toRecord: (error: unknown) => ErrorRecord,
): End {
  const { uid, attempt: number, beganMs, workerId } = attempt
  const facts = report.facts ?? null
  const common = { uid, attempt: number, beganMs, atMs, workerId, facts }
  if (report.kind === 'cancel') {
    return { ...common, outcome: { kind: 'cancel', reason: report.reason } }
  }
  if (report.kind === 'fail') {
    const { error, isThrown = false } = report
    return { ...common, outcome: { kind: 'fail', error: toRecord(error), isThrown } }
  }
  const { value } = report
  try {
    expectPortable(value, 'return_value', ResultNotSerializableError)
  } catch (error) {
    return { ...common, outcome: { kind: 'fail', error: toRecord(error), isThrown: true } }
  }
  if (beganMs !== null && workerId !== null && isOnlyWorker(facts)) {
    return [uid, number, beganMs, atMs, workerId, value]
  }
  return { ...common, outcome: { kind: 'complete', value } }
}

const isOnlyWorker = (facts: object | null): boolean =>
  facts === null || Object.keys(facts).every((key) => key === 'workerId')

const uidOf = (end: End): string => (isCompletion(end) ? end[0] : end.uid)

const isCompletion = (end: End): end is WireCompletion => Array.isArray(end)

function toWireEnd(end: End): WireEnd {
  if (!isCompletion(end)) return end
  const [uid, attempt, beganMs, atMs, workerId, value] = end
  return {
    uid,
    attempt,
    beganMs,
    atMs,
    workerId,
    facts: null,
    outcome: { kind: 'complete', value },
  }
}

/** An error that is too large for a message keeps its type and the start of its texts. */
function cutOff(end: WireEnd): WireEnd {
  if (end.outcome.kind !== 'fail' || !end.outcome.error.isError) return end
  const { error } = end.outcome
  const short = {
    isError: true,
    type: error.type,
    ...(error.lineage === undefined ? {} : { lineage: error.lineage }),
    name: error.name,
    message: error.message.slice(0, 10_000),
    stack: error.stack.slice(0, 10_000),
    fields: {},
  } as const
  return { ...end, outcome: { ...end.outcome, error: short } }
}
