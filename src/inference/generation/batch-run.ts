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
import { toContractErrorEnd, toEngineErrorEnd } from './inference-errors.ts'
import type { QueuedRequest } from './request-queue.ts'

export interface BatchReport {
  readonly workerId: string
  readonly size: number
  readonly waitMs: number
  readonly durationMs: number
  readonly requestIds: readonly string[]
  /** The start of the batch in wall-clock seconds. */
  readonly startedAt: number
  /** Why the batch failed as a whole; `null` if at most single requests failed. */
  readonly error: string | null
}

export type BatchFailure = { readonly cause: unknown } | null

/** `ended` or `unanswered` is called once for each request, and then `finished` once. */
export interface BatchOwner {
  ended(request: QueuedRequest, run: BatchRun, end: GenerationEnd): void
  unanswered(request: QueuedRequest, run: BatchRun, failure: BatchFailure): void
  /** Called if the engine reports an unknown request or an invalid outcome. */
  breached(): void
  finished(report: BatchReport): void
}

export class BatchRun implements GenerationListener {
  readonly worker: AttachedWorker
  readonly size: number
  readonly #clock: Clock
  readonly #owner: BatchOwner
  readonly #openRequests = new Map<string, QueuedRequest>()
  readonly #requestIds: readonly string[]
  readonly #startedMs: number
  readonly #startedAt: number
  #waitMs = 0

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
      this.#waitMs = Math.max(this.#waitMs, this.#startedMs - request.arrivedMs)
      this.#openRequests.set(request.id, request)
    }
    this.#requestIds = [...this.#openRequests.keys()]
  }

  /** Resolves when the engine has finished the batch; never rejects. */
  async begin(): Promise<void> {
    const requests: GenerationRequest[] = []
    for (const { request, engineAbort } of this.#openRequests.values()) {
      const { id, input, sampling } = request
      if (engineAbort !== null) requests.push({ id, input, sampling, signal: engineAbort.signal })
    }
    let failure: BatchFailure = null
    try {
      await this.worker.worker.generate(requests, this)
    } catch (cause) {
      failure = { cause }
    }
    if (this.#openRequests.size > 0) this.#returnUnanswered(failure)
  }

  delta(id: string, delta: GenerationDelta): Promise<void> | undefined {
    const request = this.#openRequests.get(id)
    if (request === undefined) this.#owner.breached()
    if (request === undefined || request.hasEnded) return undefined
    request.hasDelta = true
    request.lastActiveMs = this.#clock.monotonicMs()
    const accepted = request.options.listener.delta(delta)
    if (accepted !== undefined) request.waitForReader(accepted, this.#clock)
    return accepted
  }

  end(id: string, end: GenerationEnd): void {
    const request = this.#openRequests.get(id)
    if (request === undefined) return this.#owner.breached()
    const validEnd = request.hasEnded ? end : this.#validateEnd(end)
    this.#openRequests.delete(id)
    this.#owner.ended(request, this, validEnd)
    if (this.#openRequests.size === 0) this.#report(null)
  }

  /** Validates the outcome, because third-party engines may pass anything. */
  #validateEnd(end: GenerationEnd | null | undefined): GenerationEnd {
    if (end?.kind === 'done') return end
    if (end?.kind === 'failed') return toEngineErrorEnd(end.error)
    this.#owner.breached()
    const isCanceled = end?.kind === 'canceled'
    return toContractErrorEnd(
      isCanceled
        ? 'reported a request as canceled that had not been canceled'
        : 'reported an end of an unknown kind',
    )
  }

  #returnUnanswered(failure: BatchFailure): void {
    const unanswered = [...this.#openRequests.values()]
    this.#openRequests.clear()
    for (const request of unanswered) this.#owner.unanswered(request, this, failure)
    const { length: count } = unanswered
    const requests = count === 1 ? 'request' : 'requests'
    const text = `EngineContractError: ${count} ${requests} left unanswered`
    this.#report(failure === null ? text : messageOf(failure.cause))
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
