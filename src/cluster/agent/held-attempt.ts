/** The attempts that an agent holds for a session: queued here, or given to the node's backend. */

import type { Job, OutputFiles } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { byTurn, JobQueue } from '../../backends/local/job-queue.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { HeldJob, PriorityRange, SentJob } from '../wire/messages.ts'

/** The minimum time over which the completion rate is measured. */
const rateMs = 50
/** After this time without a completion, no attempts are given to the backend in advance. */
const stalledMs = 100
/** After this time without a completion, the measured rate drops to 0. */
const staleMs = 1000
/** A lower bound for measured times: the clock may not advance while a few short jobs run. */
const minMs = 0.01
const maxFactor = 64
/**
 * Short attempts that end slowly, because the machine is busy with other work, count as if they
 * ended faster: smaller batches would cost more messages, and slow the machine down further.
 */
const maxRaise = 64
const maxRaisedPerSecond = 2000
/** Attempts below this duration count as short. */
const shortMs = 50
/** The minimum number of short attempts from which the next ones are predicted. */
const minShort = 4

export class HeldAttempt extends TaggedJob implements Job {
  readonly sessionId: string
  /** The driver's index of the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec
  readonly sequence: number
  /** Whether the attempt has neither ended nor left. Written only by `HeldAttempts`. */
  isHeld = false
  isWaiting = true
  /** Whether the attempt is in the queue, and does not wait for its module. */
  isQueued = false
  /** Whether the attempt was given to the node's backend, and holds its cores. */
  isGiven = false
  beganMs: number | null = null
  workerId: string | null = null
  files: OutputFiles | null = null
  /** The time of the last event from the attempt's code. */
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

  /** The form in which a driver that attaches learns of the attempt. */
  toHeldJob(): HeldJob {
    const { uid, attempt, beganMs, workerId } = this
    return { uid, attempt, beganMs, workerId }
  }
}

/** The properties of a driver that decide whether queued jobs are returned to it. */
export interface PlacingDriver {
  /** Whether the driver could give returned jobs to another agent. */
  readonly canPlaceMore: boolean
  /** The priorities of the driver's jobs that may be sent ahead; `null` if there are none. */
  readonly waitingPriorities: PriorityRange | null
}

/**
 * Tracks for each task the held attempt, or the number of the attempt until its result is recorded.
 */
export class HeldAttempts {
  readonly #clock: Clock
  readonly #hasDriverMore: () => boolean
  readonly #attempts = new Map<string, HeldAttempt | number>()
  readonly #queue = new JobQueue<HeldAttempt>()
  #size = 0
  #givenCores = 0
  /** Since when at least one attempt is held; `null` if none is. */
  #busySinceMs: number | null = null
  #busyMs = 0
  #ends = 0
  /** The attempts among `#ends` that had begun, and their total run time. */
  #begunEnds = 0
  #ranMs = 0
  /** How many of the latest ended attempts were short. */
  #shortEnds = 0
  #measuredMs: number
  /** When the last attempt ended. */
  #endedMs = -Infinity
  #rate: number | null = null
  #raisedRate = 0
  /** Whether no attempt was held at some time since the last measurement. */
  #hasBeenIdle = false
  #aheadFactor = 1

  /** `hasDriverMore`: whether the driver has jobs that wait for an agent. */
  constructor(clock: Clock, hasDriverMore: () => boolean) {
    this.#clock = clock
    this.#hasDriverMore = hasDriverMore
    this.#measuredMs = clock.monotonicMs()
  }

  get size(): number {
    return this.#size
  }

  /**
   * Recent completions per second of busy time, because idle time says nothing about the node's
   * capacity. Not below the rate that short attempts would reach on an otherwise idle machine,
   * within limits. `null` before the first completion.
   */
  get rate(): number | null {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#measuredMs >= rateMs) this.#measure(nowMs)
    return this.#rate === null ? null : Math.max(this.#rate, this.#raisedRate)
  }

  /** Whether no attempt has ended for a while: the next ones may take as long. */
  get isStalled(): boolean {
    return this.#clock.monotonicMs() - this.#endedMs > stalledMs
  }

  /** How long the held attempts keep the node busy at the current rate; 0 if none is held. */
  get workMs(): number {
    if (this.#size === 0) return 0
    return this.#rate === null || this.#rate === 0 ? minMs : (this.#size * 1000) / this.#rate
  }

  /**
   * The factor by which more jobs than usual should wait here. It grows while the agent runs out of
   * jobs although its driver has some, because the round trip takes long.
   */
  get aheadFactor(): number {
    return this.#aheadFactor
  }

  get(uid: string): HeldAttempt | undefined {
    const found = this.#attempts.get(uid)
    return typeof found === 'object' ? found : undefined
  }

  /** The latest attempt that is held or has ended; 0 for an unknown task. */
  latest(uid: string): number {
    const found = this.#attempts.get(uid) ?? 0
    return typeof found === 'number' ? found : found.attempt
  }

  add(held: HeldAttempt): void {
    this.#attempts.set(held.uid, held)
    held.isHeld = true
    if (this.#size++ === 0) this.#busySinceMs = this.#clock.monotonicMs()
  }

  /** Marks the attempt as ended at `atMs`. Its number is kept until its result is recorded. */
  end(held: HeldAttempt, atMs: number): void {
    this.#attempts.set(held.uid, held.attempt)
    held.isHeld = false
    this.#endedMs = this.#clock.monotonicMs()
    this.#ends++
    if (held.beganMs !== null) {
      this.#countEnd(atMs - held.beganMs)
    }
    this.#leave()
  }

  delete(held: HeldAttempt): void {
    this.#attempts.delete(held.uid)
    held.isHeld = false
    this.#leave()
  }

  /**
   * Called when the result of an attempt is recorded. A later attempt of the task may be held by
   * now.
   */
  recorded(uid: string): void {
    if (typeof this.#attempts.get(uid) === 'number') this.#attempts.delete(uid)
  }

  /** The number of attempts that could begin now. */
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

  /** The cores of attempts that were given to the backend. */
  get givenCores(): number {
    return this.#givenCores
  }

  /** Takes the next attempts for the backend from the queue, until they hold this many cores. */
  give(maxCores: number): { readonly jobs: readonly HeldAttempt[]; readonly cores: number } {
    const jobs: HeldAttempt[] = []
    let cores = 0
    while (cores < maxCores) {
      const held = this.#queue.take()
      if (held === undefined) break
      held.isWaiting = false
      held.isGiven = true
      cores += held.spec.resources.cores
      jobs.push(held)
    }
    this.#givenCores += cores
    return { jobs, cores }
  }

  /** The backend no longer has the attempt. */
  leave(held: HeldAttempt): void {
    if (held.isGiven) this.#givenCores -= held.spec.resources.cores
    held.isGiven = false
  }

  /** Requeues attempts that the backend returned without beginning them. */
  putBack(held: readonly HeldAttempt[]): void {
    for (const one of held) {
      this.leave(one)
      one.isWaiting = true
      one.isQueued = true
    }
    this.#queue.putBack(held)
  }

  /**
   * Queued attempts beyond the offer and one second of work, if they may begin sooner elsewhere.
   */
  excess(
    ahead: number,
    { canPlaceMore, waitingPriorities }: PlacingDriver,
  ): readonly HeldAttempt[] {
    const max = Math.ceil(Math.max(ahead, this.rate ?? 0))
    if (this.#queue.length <= max) return []
    const queued = this.waiting.filter(({ isQueued }) => isQueued).toSorted(byTurn)
    const { lowest, highest } = waitingPriorities ?? { lowest: Infinity, highest: -Infinity }
    // Other jobs of lower priority would be sent before these, and those of higher priority need
    // the room. Attempts of the same priority as all waiting jobs would only come back.
    const isOutOfTurn = ({ spec }: HeldAttempt): boolean =>
      spec.priority > lowest || spec.priority < highest
    const excess = new Set(queued.slice(max).filter(isOutOfTurn))
    if (!canPlaceMore) return [...excess]
    const left = queued.filter((held) => !excess.has(held))
    return [...excess, ...left.slice(Math.max(2 * ahead + 8, max))]
  }

  /** The attempts that were not given to the backend. */
  get waiting(): HeldAttempt[] {
    return this.toArray().filter(({ isWaiting }) => isWaiting)
  }

  /** The form in which a driver that attaches learns of the attempts. */
  get jobs(): readonly HeldJob[] {
    return this.toArray().map((held) => held.toHeldJob())
  }

  toArray(): HeldAttempt[] {
    return [...this.#attempts.values()].filter((one) => typeof one === 'object')
  }

  #countEnd(ranMs: number): void {
    this.#begunEnds++
    this.#ranMs += ranMs
    const isShort = ranMs < shortMs
    this.#shortEnds = isShort ? Math.min(2 * minShort, this.#shortEnds + 1) : this.#shortEnds >> 1
  }

  #leave(): void {
    if (--this.#size > 0 || this.#busySinceMs === null) return
    this.#hasBeenIdle = true
    this.#busyMs += this.#clock.monotonicMs() - this.#busySinceMs
    this.#busySinceMs = null
  }

  #measure(nowMs: number): void {
    const currentMs = this.#busySinceMs === null ? 0 : nowMs - this.#busySinceMs
    const busyMs = this.#busyMs + currentMs
    // Without work, or before the first completion, the rate is unknown.
    if (busyMs === 0 || (this.#rate === null && this.#ends === 0)) return
    // One long attempt does not immediately invalidate the rate of earlier ones.
    if (this.#ends === 0 && nowMs - this.#measuredMs < staleMs) return
    this.#rate = (this.#ends * 1000) / Math.max(busyMs, minMs)
    const possible = (this.#begunEnds * 1000) / Math.max(this.#ranMs, minMs)
    const raise = this.#shortEnds < minShort ? 1 : maxRaise
    this.#raisedRate = Math.min(possible, this.#rate * raise, maxRaisedPerSecond)
    const hasLackedJobs = this.#hasBeenIdle && this.#hasDriverMore()
    const factor = hasLackedJobs ? this.#aheadFactor * 2 : this.#aheadFactor / 2
    this.#aheadFactor = Math.max(1, Math.min(maxFactor, factor))
    this.#hasBeenIdle = false
    this.#ends = 0
    this.#begunEnds = 0
    this.#ranMs = 0
    this.#busyMs = 0
    if (this.#busySinceMs !== null) this.#busySinceMs = nowMs
    this.#measuredMs = nowMs
  }
}
