/** Sends results of a session to its driver and stream, and keeps them until they are recorded. */

import type { ErrorRecord } from '../../../foundation/error-record.ts'
import type { ObjectToStore } from '../../broker/stored-objects.ts'
import { encode } from '../../wire/codec.ts'
import type { ReportedEvents, ResultsMessage, WireResult } from '../../wire/messages.ts'
import {
  type AttemptResult,
  type EndedAttempt,
  packResults,
  type ResultReport,
  toResult,
  toWireResult,
} from '../../wire/results.ts'
import type { AgentInstruction } from './agent-stimuli.ts'
import type { KeptMessages, KeptResults } from './kept-messages.ts'
import type { KnownDriver } from './known-driver.ts'
import { LargeResults, type OwnedResult } from './large-results.ts'
import type { WorkRate } from './work-rate.ts'

export interface AgentOutboxOptions {
  readonly agent: string
  /** Identifies this outbox. Its messages with results are numbered from 1. */
  readonly use: number
  readonly out: AgentInstruction[]
  readonly driver: KnownDriver
  readonly kept: KeptMessages
  readonly limitBytes: () => number
  readonly ahead: (nowMs: number) => number
  readonly toRecord: (error: unknown) => ErrorRecord
  /** Called before results are sent, so that pending events can be sent first. */
  readonly onFlush: (nowMs: number) => void
}

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

export class AgentOutbox {
  /** When results must be sent; `Infinity` if none wait for others to share their message. */
  dueMs = Infinity
  /** When the stream last got results. */
  progressMs = -Infinity
  readonly large: LargeResults
  readonly #options: AgentOutboxOptions
  #waiting: AttemptResult[] = []
  #flushedMs = -Infinity
  #sent = 0
  /** Why the broker does not store results, and whether that is because the store is full. */
  #problem: { readonly isFull: boolean } | null = null
  /** The refusal for which room is being made. */
  #refusal: { readonly error: unknown } | null = null
  #isMakingRoom = false
  #isOpening = false
  #created: string | null = null
  #mayBeLost = false
  #isClosed = false

  constructor(options: AgentOutboxOptions) {
    this.#options = options
    this.large = new LargeResults(options.out)
  }

  /** Whether the broker does not store results. No further attempts begin until it does. */
  get isBlocked(): boolean {
    return this.#problem !== null
  }

  /** Whether the store is full and the agent found nothing to remove there. */
  get needsRoom(): boolean {
    return this.#problem?.isFull ?? false
  }

  /** Whether messages remain that the stream does not have. */
  get hasUnstored(): boolean {
    return this.#waiting.length + this.large.size + this.#options.kept.unstored.length > 0
  }

  get unstoredResults(): number {
    const { unstored } = this.#options.kept
    return unstored.reduce(
      (sum, { results }) => sum + results,
      this.#waiting.length + this.large.size,
    )
  }

  /**
   * Sends the result immediately if the agent holds no other work. Otherwise the result waits so
   * that several results share a message. It waits for the batch time, or at most half of the time
   * that the remaining work needs.
   */
  add(
    attempt: EndedAttempt & { readonly driverStart: number },
    report: ResultReport,
    atMs: number,
    work: WorkRate,
    nowMs: number,
  ): void {
    if (this.#isClosed) return
    const { driver, toRecord } = this.#options
    const result = toResult(attempt, report, atMs, toRecord)
    const { driverStart } = attempt
    if (driverStart === driver.start) this.#waiting.push(result)
    else this.#waiting.push({ ...toWireResult(result), driverStart })
    const { workMs } = work
    if (workMs === 0) return this.flush(nowMs)
    if (this.dueMs !== Infinity) return
    const isBusy = (work.rate(nowMs) ?? 0) > busyRate
    const batchMs = Math.max(this.#batchMs(isBusy), Math.min(backlogBatchMs, workMs / 2))
    const leftMs = batchMs - (nowMs - this.#flushedMs)
    // The last message was long ago, so a single result is sent immediately.
    if (leftMs <= 0 && !isBusy) return this.flush(nowMs)
    this.dueMs = nowMs + Math.max(0, leftMs)
  }

  #batchMs(isBusy: boolean): number {
    const idleMs = Math.min(maxBatchMs, this.#options.driver.agents * batchMsPerAgent)
    return isBusy ? Math.max(busyBatchMs, idleMs) : idleMs
  }

  flush(nowMs: number): void {
    this.dueMs = Infinity
    if (this.#waiting.length === 0) return
    this.#options.onFlush(nowMs)
    this.#flushedMs = nowMs
    const results = this.#waiting
    this.#waiting = []
    this.#send(results, nowMs)
  }

  #send(results: readonly AttemptResult[], nowMs: number): void {
    const [first] = results
    if (first === undefined) return
    const payload = this.#serialize(results, this.#sent + 1)
    if (this.#fits(payload)) return this.#publish(results.length, payload, null, nowMs)
    if (results.length === 1) return this.large.store(this.#toOwned(toWireResult(first)))
    const middle = results.length >> 1
    this.#send(results.slice(0, middle), nowMs)
    this.#send(results.slice(middle), nowMs)
  }

  #toOwned(result: WireResult): OwnedResult {
    return { driverStart: this.#options.driver.start, ...result }
  }

  /** Sends a result whose contents are stored in `object`, or will not be. */
  sendShort(result: WireResult, object: ObjectToStore | null, nowMs: number): void {
    this.#options.onFlush(nowMs)
    this.#publish(1, this.#serialize([result], this.#sent + 1), object, nowMs)
  }

  /** Sends events that no driver has confirmed. They are stored like results. */
  sendEvents(reports: readonly ReportedEvents[], nowMs: number): void {
    for (const one of reports) {
      const message = { ...this.#toMessage([], this.#sent + 1, nowMs), reports: [one] }
      this.#publish(0, encode(message), null, nowMs)
    }
  }

  #publish(results: number, payload: Buffer, object: ObjectToStore | null, nowMs: number): void {
    if (this.#isClosed) return
    const { kept, driver, out } = this.#options
    const message = kept.addResults({ number: ++this.#sent, results, payload, object })
    const header = driver.link.nextHeader(nowMs)
    if (driver.hasStream(nowMs)) return this.#append(message, payload, header)
    if (driver.isConnected) out.push({ kind: 'send', header, payload })
    this.#openStream()
  }

  #append(message: KeptResults, payload: Buffer, header = this.#options.driver.storedHeader): void {
    const { driver, out } = this.#options
    message.state = 'appending'
    const { number } = message
    out.push({ kind: 'append', header, payload, number, connection: driver.connection })
  }

  /** Sends a kept message with results again on a new link. */
  resend(message: KeptResults, nowMs: number): void {
    const { kept, driver, out } = this.#options
    if (message.payload === null) return
    kept.renewOrder(message)
    const header = driver.link.nextHeader(nowMs)
    if (message.state !== 'unstored') out.push({ kind: 'send', header, payload: message.payload })
    else this.#append(message, message.payload, header)
  }

  /** Puts the value to which a message refers into the store again. The driver reads it again. */
  restore(number: number): void {
    const object = this.#options.kept.getResults(number)?.object ?? null
    if (object !== null) this.large.restore(object)
  }

  handlePut(id: number, name: string, nowMs: number): void {
    this.#problem = null
    this.progressMs = nowMs
    const stored = this.large.markStored(id, name)
    if (stored !== null) this.sendShort(stored.result, stored.object, nowMs)
  }

  handleAppended(number: number, connection: number, nowMs: number): void {
    const { driver, kept } = this.#options
    if (connection !== driver.connection) return
    this.#problem = null
    this.progressMs = nowMs
    kept.markStored(number)
  }

  /** A refused message is stored again at the next tick, or when there is room. */
  handleRefusal(number: number, connection: number, error: unknown, isFull: boolean): void {
    const { driver, kept } = this.#options
    const message = kept.getResults(number)
    if (connection !== driver.connection || message?.state !== 'appending') return
    message.state = 'unstored'
    if (!driver.isConnected) return
    if (!isFull) {
      this.#mayBeLost = true
      return this.block(error, false)
    }
    this.#refusal = { error }
    this.makeRoom()
  }

  makeRoom(): void {
    if (this.#isMakingRoom) return
    this.#isMakingRoom = true
    this.#options.out.push({ kind: 'make-room' })
  }

  handleRoom(isMade: boolean): void {
    this.#isMakingRoom = false
    const refusal = this.#refusal
    this.#refusal = null
    if (refusal === null) return
    if (isMade) this.#storeAll()
    else this.block(refusal.error, true)
  }

  block(error: unknown, isFull: boolean): void {
    if (this.#problem === null) this.#options.out.push({ kind: 'throttled', error })
    this.#problem = { isFull }
  }

  handleStream(isOurs: boolean, created: string | null): void {
    this.#isOpening = false
    if (!isOurs) return
    const { kept } = this.#options
    const isKnown = this.#created !== null || this.#mayBeLost
    if (created !== null && created !== this.#created) {
      if (isKnown) kept.markAllUnstored()
      this.#created = created
    }
    this.#mayBeLost = false
    this.#storeAll()
  }

  /** Called when the connection is back. The server may be another one. */
  handleConnected(): void {
    this.#isOpening = false
    this.#options.kept.markAllUnstored()
    this.tick()
  }

  /** Finds the stream if it lacks messages, and stores them there. */
  tick(): void {
    if (this.#options.kept.unstored.some(({ state }) => state === 'unstored')) this.#openStream()
  }

  #openStream(): void {
    if (this.#isOpening || !this.#options.driver.isConnected) return
    this.#isOpening = true
    this.#options.out.push({ kind: 'open-stream' })
  }

  #storeAll(): void {
    for (const message of this.#options.kept.unstored) {
      if (message.state !== 'unstored' || message.payload === null) continue
      if (message.mayLackObject && message.object !== null) this.large.restore(message.object)
      message.mayLackObject = false
      this.#append(message, message.payload)
    }
  }

  /** Drops all results, and those that follow. */
  close(): void {
    this.#isClosed = true
    this.#waiting = []
    this.dueMs = Infinity
    this.large.clear()
    this.#options.kept.clear()
  }

  #fits({ length }: Buffer): boolean {
    return length <= this.#options.limitBytes()
  }

  #serialize(results: readonly AttemptResult[], number: number): Buffer {
    return encode(this.#toMessage(results, number, this.#flushedMs))
  }

  #toMessage(results: readonly AttemptResult[], number: number, nowMs: number): ResultsMessage {
    const { agent, use, driver, ahead } = this.#options
    const own = { agent, use, number: Math.max(1, number), driverStart: driver.start }
    return { kind: 'ends', ...own, ahead: ahead(nowMs), ...packResults(results) }
  }
}
