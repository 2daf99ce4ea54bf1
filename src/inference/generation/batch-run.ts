/** One batch in one engine, from `generate` to the end of its last request. Never retries. */

import type { Clock } from '../../foundation/clock.ts'
import { messageOf } from '../../foundation/errors.ts'
import type { AttachedWorker } from './batch-policy.ts'
import type {
  GenerationDelta,
  GenerationEnd,
  GenerationListener,
  GenerationRequest,
} from './inference-engine.ts'
import { contractBroken, engineFailed } from './inference-errors.ts'
import type { QueuedRequest } from './request-queue.ts'

/** A batch that has ended. */
export interface BatchReport {
  readonly workerId: string
  readonly size: number
  /** How long the oldest request of the batch had been queued. */
  readonly waitMs: number
  readonly durationMs: number
  readonly requestIds: readonly string[]
  /** Wall-clock seconds. */
  readonly startedAt: number
  /**
   * Why the batch failed as a whole or left requests unanswered; `null` otherwise. The failure of a
   * single request is not included.
   */
  readonly error: string | null
}

/** Why a batch failed as a whole; `null` if `generate` resolved without ending every request. */
export type BatchFailure = { readonly cause: unknown } | null

/** Gets every request back exactly once, by `ended` or `unanswered`, and then the report. */
export interface BatchOwner {
  /** The engine has ended the request. */
  ended(request: QueuedRequest, run: BatchRun, end: GenerationEnd): void
  /** The engine has finished the batch without ending the request. */
  unanswered(request: QueuedRequest, run: BatchRun, failure: BatchFailure): void
  /** The engine violated its contract by a call for an unknown request or an invalid outcome. */
  breached(): void
  finished(report: BatchReport): void
}

/** Matches the engine's calls to the requests of the batch by their ids. */
export class BatchRun implements GenerationListener {
  readonly worker: AttachedWorker
  readonly size: number
  readonly #clock: Clock
  readonly #owner: BatchOwner
  readonly #open = new Map<string, QueuedRequest>()
  readonly #requestIds: readonly string[]
  readonly #startedMs: number
  readonly #startedAt: number
  #waitMs = 0

  /** Assigns the requests to the worker; `begin` sends them. */
  constructor(
    worker: AttachedWorker,
    requests: readonly QueuedRequest[],
    clock: Clock,
    owner: BatchOwner,
  ) {
    this.worker = worker
    this.size = requests.length
    this.#clock = clock
    this.#owner = owner
    this.#startedMs = clock.monotonicMs()
    this.#startedAt = clock.now()
    for (const request of requests) {
      request.assign(worker, this.#startedMs)
      this.#waitMs = Math.max(this.#waitMs, this.#startedMs - request.sinceMs)
      this.#open.set(request.id, request)
    }
    this.#requestIds = [...this.#open.keys()]
  }

  /** Resolves when the engine has finished the batch; never rejects. */
  async begin(): Promise<void> {
    const requests: GenerationRequest[] = []
    for (const { request, inEngine } of this.#open.values()) {
      const { id, input, sampling } = request
      if (inEngine !== null) requests.push({ id, input, sampling, signal: inEngine.signal })
    }
    let failure: BatchFailure = null
    try {
      await this.worker.worker.generate(requests, this)
    } catch (cause) {
      failure = { cause }
    }
    if (this.#open.size > 0) this.#returnUnanswered(failure)
  }

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const request = this.#open.get(id)
    if (request === undefined) this.#owner.breached()
    if (request === undefined || request.hasEnded) return undefined
    request.hasDelta = true
    request.activeMs = this.#clock.monotonicMs()
    const accepted = request.options.listener.delta(delta)
    if (accepted !== undefined) request.waitForReader(accepted, this.#clock)
    return accepted
  }

  end(id: string, end: GenerationEnd): void {
    const request = this.#open.get(id)
    if (request === undefined) return this.#owner.breached()
    const checked = request.hasEnded ? end : this.#checked(end)
    this.#open.delete(id)
    this.#owner.ended(request, this, checked)
    if (this.#open.size === 0) this.#report(null)
  }

  /** Validates the outcome, because third-party engines may pass anything. */
  #checked(end: GenerationEnd | null | undefined): GenerationEnd {
    if (end?.kind === 'done') return end
    if (end?.kind === 'failed') return engineFailed(end.error)
    this.#owner.breached()
    const isCanceled = end?.kind === 'canceled'
    return contractBroken(
      isCanceled
        ? 'reported a request as canceled that had not been canceled'
        : 'reported an end of an unknown kind',
    )
  }

  #returnUnanswered(failure: BatchFailure): void {
    const left = [...this.#open.values()]
    this.#open.clear()
    for (const request of left) this.#owner.unanswered(request, this, failure)
    this.#report(failure === null ? unansweredText(left.length) : messageOf(failure.cause))
  }

  #report(error: string | null): void {
    this.#owner.finished({
      workerId: this.worker.worker.workerId,
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
