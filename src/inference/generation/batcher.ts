/** Collects requests into batches for workers. The only one who ends a request; knows no engine. */

import type { Clock } from '../../foundation/clock.ts'
import { StateError } from '../../foundation/errors.ts'
import { AbortRegistry } from '../../runtime/abort-registry.ts'
import { DeadlineTimer, Deadlines } from '../../runtime/deadlines.ts'
import { contractBroken, engineFailed, failed, timedOut } from './batch-errors.ts'
import { type BatchPolicy, decideBatch } from './batch-policy.ts'
import { type BatchFailure, type BatchReport, BatchRun, type RunOwner } from './batch-run.ts'
import type { GenerationEnd } from './inference-engine.ts'
import { inferenceCodeOf } from './inference-errors.ts'
import { type BatchWorker, Seat } from './seat.ts'
import { type QueuedRequest, Ticket } from './ticket.ts'
import { WaitingLine } from './waiting-line.ts'

export type { BatchPolicy } from './batch-policy.ts'
export type { BatchReport } from './batch-run.ts'
export type { BatchWorker } from './seat.ts'
export type { QueuedRequest } from './ticket.ts'

export interface BatcherParts {
  readonly clock: Clock
  readonly policy: BatchPolicy
  /** How many may wait. */
  readonly queueLimit: number
  /** Told once for every batch that an engine got, when its last request has ended. */
  readonly onBatch: (report: BatchReport) => void
  /** How long an engine may be silent about a request, above 0; `null` for ever. */
  readonly engineTimeoutMs: number | null
}

/**
 * Every accepted request ends exactly once. What comes in one turn of the event loop is looked at
 * together, so that many connections make one batch. When a batch fails as a whole, its requests
 * are tried again, each alone; those of a lost engine go to another one, once, unless their reader
 * has a part of the answer.
 */
export class Batcher {
  readonly #parts: BatcherParts
  readonly #clock: Clock
  readonly #engineTimeoutMs: number
  readonly #line = new WaitingLine()
  readonly #leaving = new AbortRegistry<Ticket>((ticket) => this.#cancel(ticket))
  readonly #deadlines: Deadlines<Ticket>
  readonly #window: DeadlineTimer
  readonly #seats = new Map<string, Seat>()
  readonly #open = new Map<string, Ticket>()
  readonly #runOwner: RunOwner
  #drained: PromiseWithResolvers<void> | null = null
  #running = 0
  #tickets = 0
  #breaches = 0
  #isLookDue = false

  constructor(parts: BatcherParts) {
    this.#parts = parts
    this.#clock = parts.clock
    this.#engineTimeoutMs = parts.engineTimeoutMs ?? Infinity
    this.#deadlines = new Deadlines(parts.clock, (ticket) => this.#overdue(ticket))
    this.#window = new DeadlineTimer(parts.clock, () => this.#look())
    this.#runOwner = {
      answered: (ticket, run, end) => {
        this.#letGo(ticket, run.seat)
        this.#end(ticket, end)
      },
      unanswered: (ticket, run, failure) => {
        this.#letGo(ticket, run.seat)
        if (!ticket.hasEnded) this.#retryOrFail(ticket, run.size, failure)
      },
      breached: () => this.#breaches++,
      finished: (report) => parts.onBatch(report),
    }
  }

  /** Requests that wait. */
  get queued(): number {
    return this.#line.size
  }

  /** Requests that an engine has, also those that it was asked to let go. */
  get running(): number {
    return this.#running
  }

  /** Calls of engines that their contract does not allow; they were ignored. */
  get breaches(): number {
    return this.#breaches
  }

  oldestWaitMs(): number {
    const oldest = this.#line.oldest()
    return oldest === undefined ? 0 : this.#clock.monotonicMs() - oldest.sinceMs
  }

  /** A full queue or a closed batcher ends it at once with `queue_full` or `closing`. */
  enqueue(one: QueuedRequest): void {
    const { request, listener, timeoutMs } = one
    if (this.#open.has(request.id)) throw new StateError(`request ${request.id} is already here`)
    if (request.signal.aborted) return listener.end({ kind: 'canceled' })
    if (this.#drained !== null) return listener.end(failed('closing', 'no more is accepted'))
    const { bounded } = this.#line
    if (one.isBounded && bounded >= this.#parts.queueLimit) {
      return listener.end(failed('queue_full', `${bounded} requests are waiting already`))
    }
    if (timeoutMs !== null && timeoutMs <= 0) return listener.end(timedOut(timeoutMs))
    const nowMs = this.#clock.monotonicMs()
    const ticket = new Ticket(one, this.#tickets++, nowMs, this.#leaving)
    this.#open.set(request.id, ticket)
    this.#wait(ticket)
  }

  addWorker(worker: BatchWorker): void {
    const { workerId } = worker
    if (this.#seats.has(workerId)) throw new StateError(`worker ${workerId} is already here`)
    this.#seats.set(workerId, new Seat(worker))
    this.#lookSoon()
  }

  /** No new requests go there; resolves when what it has has ended. */
  removeWorker(workerId: string): Promise<void> {
    const seat = this.#seats.get(workerId)
    if (seat === undefined) return Promise.resolve()
    seat.isLeaving = true
    this.#leaveIfIdle(seat)
    return seat.left.promise
  }

  /**
   * New ones are refused; resolves when all that was accepted has ended, at the latest when
   * `signal` aborts, which cancels the rest.
   */
  drain(signal: AbortSignal): Promise<void> {
    this.#drained ??= Promise.withResolvers()
    const cancelAll = (): void => {
      for (const ticket of this.#open.values()) this.#cancel(ticket)
    }
    if (signal.aborted) cancelAll()
    else signal.addEventListener('abort', cancelAll, { once: true })
    if (this.#open.size === 0) this.#drained.resolve()
    this.#lookSoon()
    return this.#drained.promise.finally(() => signal.removeEventListener('abort', cancelAll))
  }

  #wait(ticket: Ticket): void {
    this.#line.add(ticket)
    this.#deadlines.set(ticket, ticket.dueMs)
    this.#lookSoon()
  }

  /** One look a turn: the requests of all connections that were read in it go together. */
  #lookSoon(): void {
    if (this.#isLookDue) return
    this.#isLookDue = true
    this.#clock.nextTurn(() => {
      this.#isLookDue = false
      this.#look()
    })
  }

  #look(): void {
    for (;;) {
      const next = this.#line.next()
      const line = {
        queued: this.#line.size,
        oldestMs: this.#line.oldest()?.sinceMs ?? 0,
        nowMs: this.#clock.monotonicMs(),
        isUrgent: next?.isRetry === true || this.#drained !== null,
      }
      const decision = decideBatch(this.#parts.policy, line, this.#seats.values())
      if (decision.kind !== 'send') {
        return this.#window.set(decision.kind === 'wait' ? decision.untilMs : Infinity)
      }
      this.#send(decision.to, this.#line.take(decision.size))
    }
  }

  #send(seat: Seat, taken: readonly Ticket[]): void {
    for (const ticket of taken) ticket.start(seat.worker.workerId)
    // Hearing of the start, one may have left.
    const tickets = taken.filter(({ hasEnded }) => !hasEnded)
    if (tickets.length === 0) return
    seat.running += tickets.length
    this.#running += tickets.length
    const run = new BatchRun(seat, tickets, this.#clock, this.#runOwner)
    for (const ticket of tickets)
      this.#deadlines.set(ticket, ticket.heardMs + this.#engineTimeoutMs)
    void run.begin()
  }

  #cancel(ticket: Ticket): void {
    this.#stop(ticket, { kind: 'canceled' })
  }

  /** Ends it before an engine does. An engine that has it is asked to let go. */
  #stop(ticket: Ticket, end: GenerationEnd): void {
    this.#line.remove(ticket)
    if (this.#line.size === 0) this.#window.set(Infinity)
    this.#end(ticket, end)
    if (ticket.inEngine === null) return
    this.#deadlines.set(ticket, this.#clock.monotonicMs() + this.#engineTimeoutMs)
    ticket.inEngine.abort()
  }

  #end(ticket: Ticket, end: GenerationEnd): void {
    if (ticket.hasEnded) return
    this.#open.delete(ticket.queued.request.id)
    this.#deadlines.remove(ticket)
    ticket.end(end)
    if (this.#open.size === 0) this.#drained?.resolve()
  }

  #letGo(ticket: Ticket, seat: Seat): void {
    ticket.inEngine = null
    this.#deadlines.remove(ticket)
    this.#running--
    seat.running--
    this.#leaveIfIdle(seat)
    if (this.#line.size > 0) this.#lookSoon()
  }

  #leaveIfIdle(seat: Seat): void {
    if (!seat.isLeaving || seat.running > 0) return
    this.#seats.delete(seat.worker.workerId)
    seat.left.resolve()
  }

  #retryOrFail(ticket: Ticket, batchSize: number, failure: BatchFailure): void {
    if (failure === null) return this.#end(ticket, contractBroken('left a request unanswered'))
    const code = inferenceCodeOf(failure.cause)
    const mayRetry = code !== 'closing' && ticket.claimRetry(code === 'engine_lost', batchSize)
    if (mayRetry) this.#wait(ticket)
    else this.#end(ticket, engineFailed(failure.cause))
  }

  #overdue(ticket: Ticket): void {
    const nowMs = this.#clock.monotonicMs()
    const timeoutMs = this.#engineTimeoutMs
    if (ticket.hasEnded) {
      ticket.seat?.worker.giveUp?.(`it did not let go of a request within ${timeoutMs / 1000} s`)
    } else if (nowMs >= ticket.dueMs) {
      this.#stop(ticket, timedOut(ticket.queued.timeoutMs ?? 0))
    } else {
      const heardMs = ticket.heldBack > 0 ? nowMs : ticket.heardMs
      const silentMs = ticket.inEngine === null ? Infinity : heardMs + timeoutMs
      if (nowMs < silentMs) return this.#deadlines.set(ticket, Math.min(ticket.dueMs, silentMs))
      const text = `the engine was silent for ${timeoutMs / 1000} s`
      this.#stop(ticket, failed('engine_timeout', text))
    }
  }
}
