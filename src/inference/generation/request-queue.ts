/** The queue of requests that wait for an engine, and the state of each request. */

import type { Clock } from '../../foundation/clock.ts'
import type { AbortRegistry } from '../../runtime/abort-registry.ts'
import type { HasDeadline } from '../../runtime/deadlines.ts'
import { PriorityQueue, type QueueEntry } from '../../runtime/priority-queue.ts'
import type { AttachedWorker, BatchWorker } from './batch-policy.ts'
import type { GenerationDelta, GenerationEnd, GenerationRequest } from './inference-engine.ts'

export interface EnqueueOptions {
  /** Aborting its `signal` removes the request from the queue, or aborts it in the engine. */
  readonly request: GenerationRequest
  /** Higher is served first. Within a priority, retries come first, then clients take turns. */
  readonly priority: number
  /** The client that sent the request. Default: this process, whose tasks count as one client. */
  readonly client?: string
  readonly isRetry?: boolean
  /** The time limit of the request, including its time in the queue; `null` for no limit. */
  readonly timeoutMs: number | null
  /**
   * Whether the request is rejected if the queue is full or no engine can start. Tasks wait
   * instead: their session limits how many are open.
   */
  readonly isBounded: boolean
  readonly listener: QueueListener
}

/** Receives the progress of one request. Its methods never throw. */
export interface QueueListener {
  /** Called at most once, before all other calls, when an engine begins with the request. */
  started(workerId: string, nodeId: string | undefined): void
  /** The engine pauses this request until a returned promise settles. */
  delta(delta: GenerationDelta): Promise<void> | undefined
  /** Called before a retry. Without it, or if it returns `false`, the request fails. */
  restart?(): boolean
  /** Called exactly once, after all other calls. */
  end(end: GenerationEnd): void
}

/** The state of one accepted request. Calls `started` at most once and `end` exactly once. */
export class QueuedRequest implements HasDeadline {
  readonly options: EnqueueOptions
  /** The request for engines. `Batcher.release` sets it again, with the checked input. */
  request: GenerationRequest
  readonly arrivalIndex: number
  /** The turn of the client in which the request is served; 0 for a repeated request. */
  turn = 0
  readonly arrivedMs: number
  readonly expiresMs: number
  readonly #aborts: AbortRegistry<QueuedRequest>
  hasStarted = false
  /** Whether the listener has received text, so that a retry needs the listener's consent. */
  hasDelta = false
  /** Whether `listener.end` has been called. An engine may still work on the request. */
  hasEnded = false
  /** Whether the batch of the request failed as a whole, so that a retry must run alone. */
  mustRunAlone = false
  hasLostEngine = false
  /** Aborts the request in its engine; `null` while the request is in no engine. */
  engineAbort: AbortController | null = null
  worker: AttachedWorker | null = null
  lastActiveMs = 0
  unreadDeltas = 0
  isHeld = false
  /** The entries of the request in the orders of `RequestQueue`: by priority and by age. */
  priorityEntry: QueueEntry | null = null
  ageEntry: QueueEntry | null = null
  /** The entry among the requests of clients that have no other request. */
  loneEntry: QueueEntry | null = null
  deadlineMs = Infinity
  deadlineEntry: QueueEntry | null = null

  constructor(
    options: EnqueueOptions,
    number: number,
    arrivedMs: number,
    aborts: AbortRegistry<QueuedRequest>,
  ) {
    this.options = options
    this.request = options.request
    this.arrivalIndex = number
    this.arrivedMs = arrivedMs
    this.expiresMs = options.timeoutMs === null ? Infinity : arrivedMs + options.timeoutMs
    this.#aborts = aborts
    aborts.add(options.request.signal, this)
  }

  get id(): string {
    return this.options.request.id
  }

  /** The client that sent the request; `""` for this process. */
  get client(): string {
    return this.options.client ?? ''
  }

  start({ workerId, nodeId }: BatchWorker): void {
    if (this.hasStarted) return
    this.hasStarted = true
    this.options.listener.started(workerId, nodeId)
  }

  assign(worker: AttachedWorker, nowMs: number): void {
    this.worker = worker
    this.engineAbort = new AbortController()
    this.lastActiveMs = nowMs
  }

  /** Counts an unread delta. Until the reader accepts it, the engine does not count as silent. */
  waitForReader(accepted: Promise<void>, clock: Clock): void {
    this.unreadDeltas++
    const resume = (): void => {
      this.unreadDeltas--
      this.lastActiveMs = clock.monotonicMs()
    }
    accepted.then(resume, resume)
  }

  end(end: GenerationEnd): void {
    if (this.hasEnded) return
    this.hasEnded = true
    this.#aborts.remove(this.options.request.signal, this)
    this.options.listener.end(end)
  }

  get isRetry(): boolean {
    return this.mustRunAlone || this.hasLostEngine
  }

  /** Whether to retry. A lost engine and a failed batch allow one retry each. */
  claimRetry(isLoss: boolean, batchSize: number): boolean {
    // In a batch of one, the request has already run alone.
    if (isLoss ? this.hasLostEngine : this.mustRunAlone || batchSize === 1) return false
    if (this.hasDelta && this.options.listener.restart?.() !== true) return false
    this.hasDelta = false
    if (isLoss) this.hasLostEngine = true
    else this.mustRunAlone = true
    return true
  }
}

/** The turns of requests with the same priority. A client without requests is removed. */
class Turns {
  readonly #clients = new Map<string, { last: number; waiting: number }>()
  /** The last turn that began. A new client takes part from the next turn on. */
  #current = 0

  get isEmpty(): boolean {
    return this.#clients.size === 0
  }

  add(request: QueuedRequest): void {
    const name = request.client
    const client = this.#clients.get(name) ?? { last: this.#current, waiting: 0 }
    this.#clients.set(name, client)
    client.waiting++
    request.turn = request.isRetry ? 0 : ++client.last
  }

  remove(request: QueuedRequest): void {
    const name = request.client
    const client = this.#clients.get(name)
    if (client !== undefined && --client.waiting === 0) this.#clients.delete(name)
  }

  began({ turn }: QueuedRequest): void {
    this.#current = Math.max(this.#current, turn)
  }
}

/** How long a client counts as a user of the model after its latest request. */
const recentMs = 600_000

/** Which clients have requests, and whether several clients use the model. */
export class ActiveClients {
  readonly #requests = new Map<string, number>()
  #latest: string | null = null
  #latestMs = -Infinity
  /** When a client other than the latest one was last seen. */
  #otherMs = -Infinity

  /** Whether at least two clients have been seen within the last ten minutes. */
  areSeveral(nowMs: number): boolean {
    return nowMs - this.#otherMs < recentMs
  }

  /** Called when a request arrives, and when it begins. */
  saw(client: string, nowMs: number): void {
    if (this.#latest !== null && this.#latest !== client) this.#otherMs = this.#latestMs
    this.#latest = client
    this.#latestMs = nowMs
  }

  count(client: string): number {
    return this.#requests.get(client) ?? 0
  }

  add(client: string): void {
    this.#requests.set(client, this.count(client) + 1)
  }

  remove(client: string): void {
    const left = this.count(client) - 1
    if (left > 0) this.#requests.set(client, left)
    else this.#requests.delete(client)
  }
}

/**
 * Sorted by priority, then retries, then turns, then arrival. Each client gets one request per
 * turn, so that a client with many requests does not delay the others. Each operation takes
 * O(log size) time.
 */
export class RequestQueue {
  readonly #byPriority = new PriorityQueue<QueuedRequest>(isServedBefore)
  readonly #byAge = new PriorityQueue<QueuedRequest>((a, b) => a.arrivalIndex < b.arrivalIndex)
  /** The requests that were the only one of their client when they were added. */
  readonly #lone = new PriorityQueue<QueuedRequest>(isServedBefore)
  readonly #turns = new Map<string, Turns>()
  /** The number of requests that count against the queue limit, including those held back. */
  boundedCount = 0
  heldCount = 0

  get size(): number {
    return this.#byPriority.size
  }

  peek(): QueuedRequest | undefined {
    return this.#byPriority.peek()
  }

  peekOldest(): QueuedRequest | undefined {
    return this.#byAge.peek()
  }

  /** Returns the first request whose client had no other when the request was added. */
  peekLone(): QueuedRequest | undefined {
    return this.#lone.peek()
  }

  addHeld(request: QueuedRequest): void {
    request.isHeld = true
    this.heldCount++
    if (request.options.isBounded) this.boundedCount++
  }

  /**
   * Adds a request. A repeated request comes before all turns, by its original arrival. `isLone`:
   * whether its client has no other request.
   */
  add(request: QueuedRequest, isLone = false): void {
    this.#turnsOf(request).add(request)
    if (request.options.isBounded) this.boundedCount++
    request.priorityEntry = this.#byPriority.add(request)
    request.ageEntry = this.#byAge.add(request)
    if (isLone) request.loneEntry = this.#lone.add(request)
  }

  /** Removes a request. Has no effect if the request is not in the queue. */
  remove(request: QueuedRequest): void {
    if (request.isHeld) {
      request.isHeld = false
      this.heldCount--
      if (request.options.isBounded) this.boundedCount--
    }
    if (request.priorityEntry === null || request.ageEntry === null) return
    if (request.options.isBounded) this.boundedCount--
    this.#byPriority.remove(request.priorityEntry)
    this.#byAge.remove(request.ageEntry)
    if (request.loneEntry !== null) this.#lone.remove(request.loneEntry)
    request.loneEntry = null
    request.priorityEntry = null
    request.ageEntry = null
    const turns = this.#turnsOf(request)
    turns.remove(request)
    if (turns.isEmpty) this.#turns.delete(rankOf(request))
  }

  dequeue(size: number): QueuedRequest[] {
    const taken: QueuedRequest[] = []
    for (let next = this.peek(); next !== undefined && taken.length < size; next = this.peek()) {
      if (next.mustRunAlone && taken.length > 0) break
      this.take(next)
      taken.push(next)
      if (next.mustRunAlone) break
    }
    return taken
  }

  /** Takes one request out of the queue because it begins. */
  take(request: QueuedRequest): void {
    this.#turnsOf(request).began(request)
    this.remove(request)
  }

  #turnsOf(request: QueuedRequest): Turns {
    const rank = rankOf(request)
    const turns = this.#turns.get(rank) ?? new Turns()
    this.#turns.set(rank, turns)
    return turns
  }
}

/** Requests of equal rank are ordered by their turns, and within a turn by their arrival. */
const rankOf = ({ options: { priority, isRetry = false } }: QueuedRequest): string =>
  `${priority} ${isRetry}`

/** By priority, then retries, then turns, then arrival. */
function isServedBefore(a: QueuedRequest, b: QueuedRequest): boolean {
  const difference = a.options.priority - b.options.priority
  if (difference !== 0) return difference > 0
  const isRetry = a.options.isRetry === true
  if (isRetry !== (b.options.isRetry === true)) return isRetry
  return a.turn === b.turn ? a.arrivalIndex < b.arrivalIndex : a.turn < b.turn
}
