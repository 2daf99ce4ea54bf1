/** One batch in one engine, from `generate` to the end of its last request. It retries nothing. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import { contractBroken, engineFailed } from './batch-errors.ts'
import type {
  GenerationDelta,
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
} from './inference-engine.ts'
import type { Seat } from './seat.ts'
import type { Ticket } from './ticket.ts'

/** A batch that has ended. */
export interface BatchReport {
  readonly workerId: string
  readonly size: number
  /** How long its oldest request had waited. */
  readonly waitMs: number
  readonly durationMs: number
  readonly requestIds: readonly string[]
  /** Wall-clock seconds. */
  readonly startedAt: number
  /** Why it failed as a whole, or broke the contract; a request that failed alone is not told. */
  readonly error: string | null
}

/** Why a batch failed as a whole; `null` for an engine that only forgot to answer. */
export type BatchFailure = { readonly cause: unknown } | null

/** Gets each ticket back once, and then the report. */
export interface RunOwner {
  /** The engine has ended it. */
  answered(ticket: Ticket, run: BatchRun, end: GenerationEnd): void
  /** The engine is done with the batch and has not ended it. */
  unanswered(ticket: Ticket, run: BatchRun, failure: BatchFailure): void
  /** A call came that the contract does not allow; it was ignored. */
  breached(): void
  finished(report: BatchReport): void
}

/** What the engine says, held against what it was given: each ticket comes back exactly once. */
export class BatchRun implements GenerationListener {
  readonly seat: Seat
  readonly size: number
  readonly #clock: Clock
  readonly #owner: RunOwner
  readonly #held = new Map<string, Ticket>()
  readonly #requestIds: readonly string[]
  readonly #startedMs: number
  readonly #startedAt: number
  #waitMs = 0

  /** The tickets belong to the engine from now on; `begin` hands them over. */
  constructor(seat: Seat, tickets: readonly Ticket[], clock: Clock, owner: RunOwner) {
    this.seat = seat
    this.size = tickets.length
    this.#clock = clock
    this.#owner = owner
    this.#startedMs = clock.monotonicMs()
    this.#startedAt = clock.now()
    for (const ticket of tickets) {
      ticket.enter(seat, this.#startedMs)
      this.#waitMs = Math.max(this.#waitMs, this.#startedMs - ticket.sinceMs)
      this.#held.set(ticket.queued.request.id, ticket)
    }
    this.#requestIds = [...this.#held.keys()]
  }

  /** Resolves when the engine is done with it; never rejects. */
  async begin(): Promise<void> {
    const requests: GenerationRequest[] = []
    for (const { queued, inEngine } of this.#held.values()) {
      const { id, input, sampling } = queued.request
      if (inEngine !== null) requests.push({ id, input, sampling, signal: inEngine.signal })
    }
    let failure: BatchFailure = null
    try {
      await this.seat.worker.generate(requests, this)
    } catch (cause) {
      failure = { cause }
    }
    if (this.#held.size > 0) this.#abandon(failure)
  }

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const ticket = this.#held.get(id)
    if (ticket !== undefined) return ticket.delta(delta, this.#clock)
    this.#owner.breached()
    return undefined
  }

  end(id: string, end: GenerationEnd): void {
    const ticket = this.#held.get(id)
    if (ticket === undefined) return this.#owner.breached()
    const checked = ticket.hasEnded ? end : this.#checked(end)
    this.#held.delete(id)
    this.#owner.answered(ticket, this, checked)
    if (this.#held.size === 0) this.#report(null)
  }

  /** What the engine says, in our codes; one that is not ours may say anything. */
  #checked(end: GenerationEnd | null | undefined): GenerationEnd {
    if (end?.kind === 'done') return end
    if (end?.kind === 'failed') return engineFailed(end.error)
    this.#owner.breached()
    const isCanceled = end?.kind === 'canceled'
    const what = isCanceled ? 'canceled what nobody had canceled' : 'gave an end of no known kind'
    return contractBroken(what)
  }

  #abandon(failure: BatchFailure): void {
    const left = [...this.#held.values()]
    this.#held.clear()
    for (const ticket of left) this.#owner.unanswered(ticket, this, failure)
    this.#report(failure === null ? unansweredText(left.length) : messageOf(failure.cause))
  }

  #report(error: string | null): void {
    this.#owner.finished({
      workerId: this.seat.worker.workerId,
      size: this.size,
      waitMs: this.#waitMs,
      durationMs: this.#clock.monotonicMs() - this.#startedMs,
      requestIds: this.#requestIds,
      startedAt: this.#startedAt,
      error,
    })
  }
}

const unansweredText = (count: number): string =>
  `EngineContractError: ${count} ${count === 1 ? 'request' : 'requests'} left unanswered`
