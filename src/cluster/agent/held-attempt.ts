/** The attempts that an agent holds for a session, queued or submitted to the node's backend. */

import type { Job, OutputFiles } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { byTurn, JobQueue } from '../../backends/local/job-queue.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { HeldJob, PriorityRange, SentJob } from '../wire/messages.ts'

const minRateMs = 50
/** After this time without a completion, no attempts are submitted beyond the node's cores. */
const stalledMs = 100
/** After this time without a completion, the measured rate drops to 0. */
const staleMs = 1000
/** The minimum for measured times, because the clock may not advance while a few short jobs run. */
const minElapsedMs = 0.01
const maxAheadFactor = 64
/**
 * The maximum ratio of the estimated to the measured rate of short attempts. On a busy machine, the
 * measured rate is too low. Without the estimate, each message would have fewer jobs, and the
 * additional messages would slow the machine down further.
 */
const maxEstimateFactor = 64
const maxEstimatedRate = 2000
const maxShortMs = 50
const minShortAttempts = 4

export class HeldAttempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec
  readonly sequence: number
  /** Whether the attempt has neither ended nor been returned. Written only by `HeldAttempts`. */
  isHeld = false
  isWaiting = true
  /** Whether the attempt is in the queue. `false` while it waits for its module. */
  isQueued = false
  /** Whether the attempt was submitted to the node's backend and still uses cores there. */
  isSubmitted = false
  beganMs: number | null = null
  workerId: string | null = null
  files: OutputFiles | null = null
  lastEventMs = -Infinity

  constructor(
    sessionId: string,
    { index, uid, attempt }: SentJob,
    spec: TaskSpec,
    sequence: number,
  ) {
    super()
    this.sessionId = sessionId
    this.index = index
    this.uid = uid
    this.attempt = attempt
    this.spec = spec
    this.sequence = sequence
  }

  get isRetry(): boolean {
    return this.attempt > 1
  }

  toHeldJob(): HeldJob {
    const { uid, attempt, beganMs, workerId } = this
    return { uid, attempt, beganMs, workerId }
  }
}

/** The state of a driver that determines which queued jobs are returned to it. */
export interface PlacingDriver {
  readonly canPlaceReturned: boolean
  readonly waitingPriorities: PriorityRange | null
}

/** The attempts of a session. Keeps the number of an ended attempt until its result is recorded. */
export class HeldAttempts {
  readonly #clock: Clock
  readonly #hasDriverJobs: () => boolean
  readonly #attempts = new Map<string, HeldAttempt | number>()
  readonly #queue = new JobQueue<HeldAttempt>()
  #size = 0
  #submittedCores = 0
  #busySinceMs: number | null = null
  #busyMs = 0
  #ended = 0
  /** The number of attempts among `#ended` that had begun. `#ranMs` is their total run time. */
  #begunEnded = 0
  #ranMs = 0
  /** The number of recent attempts that were short. Each longer attempt halves it. */
  #shortEnded = 0
  #measuredMs: number
  #endedMs = -Infinity
  #rate: number | null = null
  #estimatedRate = 0
  /** Whether no attempt was held at some time since the last measurement. */
  #hasBeenIdle = false
  #aheadFactor = 1

  constructor(clock: Clock, hasDriverJobs: () => boolean) {
    this.#clock = clock
    this.#hasDriverJobs = hasDriverJobs
    this.#measuredMs = clock.monotonicMs()
  }

  get size(): number {
    return this.#size
  }

  /**
   * The recent completions per second of busy time, or `null` before the first one. For short
   * attempts, a lower rate is raised to the estimate for a machine that does nothing else, which
   * has an upper bound.
   */
  get rate(): number | null {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#measuredMs >= minRateMs) this.#measure(nowMs)
    return this.#rate === null ? null : Math.max(this.#rate, this.#estimatedRate)
  }

  get isStalled(): boolean {
    return this.#clock.monotonicMs() - this.#endedMs > stalledMs
  }

  /** How long the held attempts keep the node busy at the current rate; 0 if none is held. */
  get workMs(): number {
    if (this.#size === 0) return 0
    return this.#rate === null || this.#rate === 0 ? minElapsedMs : (this.#size * 1000) / this.#rate
  }

  /**
   * Multiplies the number of jobs that are offered in advance. Grows while the agent runs out of
   * jobs although its driver has some.
   */
  get aheadFactor(): number {
    return this.#aheadFactor
  }

  get(uid: string): HeldAttempt | undefined {
    const found = this.#attempts.get(uid)
    return typeof found === 'object' ? found : undefined
  }

  /** The number of the task's latest attempt that is held or has ended; 0 for an unknown task. */
  latestAttempt(uid: string): number {
    const found = this.#attempts.get(uid) ?? 0
    return typeof found === 'number' ? found : found.attempt
  }

  add(held: HeldAttempt): void {
    this.#attempts.set(held.uid, held)
    held.isHeld = true
    if (this.#size++ === 0) this.#busySinceMs = this.#clock.monotonicMs()
  }

  markEnded(held: HeldAttempt, atMs: number): void {
    this.#attempts.set(held.uid, held.attempt)
    held.isHeld = false
    this.#endedMs = this.#clock.monotonicMs()
    this.#ended++
    if (held.beganMs !== null) {
      this.#countResult(atMs - held.beganMs)
    }
    this.#countRemoved()
  }

  delete(held: HeldAttempt): void {
    this.#attempts.delete(held.uid)
    held.isHeld = false
    this.#countRemoved()
  }

  /** Forgets a task whose result is recorded, unless a later attempt of it is held. */
  markRecorded(uid: string): void {
    if (typeof this.#attempts.get(uid) === 'number') this.#attempts.delete(uid)
  }

  get queued(): number {
    return this.#queue.length
  }

  enqueue(held: HeldAttempt): void {
    held.isQueued = true
    this.#queue.push(held)
  }

  unqueue(held: HeldAttempt): void {
    if (held.isQueued) this.#queue.remove(held)
    held.isQueued = false
  }

  get submittedCores(): number {
    return this.#submittedCores
  }

  takeFromQueue(maxCores: number): {
    readonly jobs: readonly HeldAttempt[]
    readonly cores: number
  } {
    const jobs: HeldAttempt[] = []
    let cores = 0
    while (cores < maxCores) {
      const held = this.#queue.pop()
      if (held === undefined) break
      held.isWaiting = false
      held.isSubmitted = true
      cores += held.spec.resources.cores
      jobs.push(held)
    }
    this.#submittedCores += cores
    return { jobs, cores }
  }

  releaseCores(held: HeldAttempt): void {
    if (held.isSubmitted) this.#submittedCores -= held.spec.resources.cores
    held.isSubmitted = false
  }

  requeue(held: readonly HeldAttempt[]): void {
    for (const one of held) {
      this.releaseCores(one)
      one.isWaiting = true
      one.isQueued = true
    }
    this.#queue.requeue(held)
  }

  /**
   * Returns queued attempts beyond both the offer and one second of work, which another node may
   * begin sooner.
   */
  findExcess(
    ahead: number,
    { canPlaceReturned, waitingPriorities }: PlacingDriver,
  ): readonly HeldAttempt[] {
    const max = Math.ceil(Math.max(ahead, this.rate ?? 0))
    if (this.#queue.length <= max) return []
    const queued = this.waiting.filter(({ isQueued }) => isQueued).toSorted(byTurn)
    const { lowest, highest } = waitingPriorities ?? { lowest: Infinity, highest: -Infinity }
    // Attempts that are out of turn are always returned: either another node would run them before
    // lower-priority jobs, or they delay higher-priority jobs here. Other attempts are returned
    // only if the driver can place them elsewhere.
    const isOutOfTurn = ({ spec }: HeldAttempt): boolean =>
      spec.priority > lowest || spec.priority < highest
    const excess = new Set(queued.slice(max).filter(isOutOfTurn))
    if (!canPlaceReturned) return [...excess]
    const others = queued.filter((held) => !excess.has(held))
    return [...excess, ...others.slice(Math.max(2 * ahead + 8, max))]
  }

  get waiting(): HeldAttempt[] {
    return this.toArray().filter(({ isWaiting }) => isWaiting)
  }

  get heldJobs(): readonly HeldJob[] {
    return this.toArray().map((held) => held.toHeldJob())
  }

  toArray(): HeldAttempt[] {
    return [...this.#attempts.values()].filter((one) => typeof one === 'object')
  }

  #countResult(ranMs: number): void {
    this.#begunEnded++
    this.#ranMs += ranMs
    const isShort = ranMs < maxShortMs
    this.#shortEnded = isShort
      ? Math.min(2 * minShortAttempts, this.#shortEnded + 1)
      : this.#shortEnded >> 1
  }

  #countRemoved(): void {
    if (--this.#size > 0 || this.#busySinceMs === null) return
    this.#hasBeenIdle = true
    this.#busyMs += this.#clock.monotonicMs() - this.#busySinceMs
    this.#busySinceMs = null
  }

  #measure(nowMs: number): void {
    const currentMs = this.#busySinceMs === null ? 0 : nowMs - this.#busySinceMs
    const busyMs = this.#busyMs + currentMs
    if (busyMs === 0 || (this.#rate === null && this.#ended === 0)) return
    // One long attempt does not immediately invalidate the rate of earlier ones.
    if (this.#ended === 0 && nowMs - this.#measuredMs < staleMs) return
    this.#rate = (this.#ended * 1000) / Math.max(busyMs, minElapsedMs)
    const possibleRate = (this.#begunEnded * 1000) / Math.max(this.#ranMs, minElapsedMs)
    const maxFactor = this.#shortEnded < minShortAttempts ? 1 : maxEstimateFactor
    this.#estimatedRate = Math.min(possibleRate, this.#rate * maxFactor, maxEstimatedRate)
    const hasLackedJobs = this.#hasBeenIdle && this.#hasDriverJobs()
    const factor = hasLackedJobs ? this.#aheadFactor * 2 : this.#aheadFactor / 2
    this.#aheadFactor = Math.max(1, Math.min(maxAheadFactor, factor))
    this.#hasBeenIdle = false
    this.#ended = 0
    this.#begunEnded = 0
    this.#ranMs = 0
    this.#busyMs = 0
    if (this.#busySinceMs !== null) this.#busySinceMs = nowMs
    this.#measuredMs = nowMs
  }
}
