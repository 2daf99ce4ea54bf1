/** The attempts that an agent holds for a session: they wait, or are with the node's backend. */

import type { Job } from '../../backends/backend.ts'
import { TaggedJob } from '../../backends/job-tag.ts'
import { byTurn, JobQueue } from '../../backends/local/job-queue.ts'
import type { Clock } from '../../foundation/clock.ts'
import type { TaskSpec } from '../../tasks/spec.ts'
import type { HeldJob, PriorityRange, SentJob } from '../wire/messages.ts'

/** How long the rate of ends is averaged over. */
const rateMs = 50
/** Without an end for this long, nothing is begun ahead. */
const stalledMs = 100
/** Without an end for this long, the rate is that of no ends. */
const staleMs = 1000
/** A clock may not move while a few short jobs run. */
const shortestMs = 0.01
const largestFactor = 64
/**
 * Attempts that are short, but end slowly because the machine is busy with something else, count as
 * if they ended faster: few at a time would cost more messages, and make it still slower.
 */
const mostLift = 64
const liftedPerSecond = 2000
/** Attempts of less count as short. */
const shortMs = 50
/** A few short ones say nothing about those that come next. */
const fewestShort = 4

export class HeldAttempt extends TaggedJob implements Job {
  readonly sessionId: string
  /** Where the driver keeps the job. */
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly spec: TaskSpec
  readonly sequence: number
  /** Written by `HeldAttempts` alone: it has neither ended nor left. */
  isHeld = false
  isWaiting = true
  /** It waits in the queue, and not for its module. */
  isQueued = false
  /** It was given to the node's backend, and holds its cores. */
  isGiven = false
  beganMs: number | null = null
  workerId: string | null = null
  /** The time of the last event of its code. */
  toldMs = -Infinity

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

  /** As a driver that attaches is told of it. */
  toHeldJob(): HeldJob {
    const { uid, attempt, beganMs, workerId } = this
    return { uid, attempt, beganMs, workerId }
  }
}

/** Of the driver, as far as its agents know: what it would do with jobs that come back. */
export interface PlacingDriver {
  /** It could give them to another agent. */
  readonly canPlaceMore: boolean
  /** Of what waits there and may wait at an agent; `null` if there is none. */
  readonly waitingPriorities: PriorityRange | null
}

/** By task: the attempt that is held, or the number of one whose end is not recorded yet. */
export class HeldAttempts {
  readonly #clock: Clock
  readonly #hasDriverMore: () => boolean
  readonly #attempts = new Map<string, HeldAttempt | number>()
  readonly #queue = new JobQueue<HeldAttempt>()
  #size = 0
  #givenCores = 0
  /** Since when there is an attempt; `null` while there is none. */
  #busySinceMs: number | null = null
  #busyMs = 0
  #ends = 0
  /** Those of them that had begun, and how long they ran. */
  #begunEnds = 0
  #ranMs = 0
  /** Of the last ones that have ended, how many were short. */
  #shortEnds = 0
  #measuredMs: number
  /** When the last one has ended. */
  #endedMs = -Infinity
  #rate: number | null = null
  #liftedRate = 0
  /** It had nothing left since the last measurement. */
  #hasRunDry = false
  #aheadFactor = 1

  /** `hasDriverMore`: whether its driver has jobs that wait for an agent. */
  constructor(clock: Clock, hasDriverMore: () => boolean) {
    this.#clock = clock
    this.#hasDriverMore = hasDriverMore
    this.#measuredMs = clock.monotonicMs()
  }

  /** How many are held. */
  get size(): number {
    return this.#size
  }

  /**
   * Ends per second of the time in which there was work, lately: time spent waiting for jobs says
   * nothing about how many the node could run. At least what short attempts would make possible on
   * a machine that has time for them, within limits. `null` before the first end.
   */
  get rate(): number | null {
    const nowMs = this.#clock.monotonicMs()
    if (nowMs - this.#measuredMs >= rateMs) this.#measure(nowMs)
    return this.#rate === null ? null : Math.max(this.#rate, this.#liftedRate)
  }

  /** Nothing has ended for a while: what waits next may take as long. */
  get isStalled(): boolean {
    return this.#clock.monotonicMs() - this.#endedMs > stalledMs
  }

  /** For how long what is held keeps the node busy, as far as its rate tells; 0 without any. */
  get workMs(): number {
    if (this.#size === 0) return 0
    return this.#rate === null || this.#rate === 0 ? shortestMs : (this.#size * 1000) / this.#rate
  }

  /**
   * How much more than usual should wait here. It grows while the agent runs out of jobs although
   * its driver has some, because the way between them takes long.
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

  /** Kept as ended until its end is recorded. It has ended at `atMs`. */
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

  /** The end of an attempt is recorded; a later one may be held. */
  recorded(uid: string): void {
    if (typeof this.#attempts.get(uid) === 'number') this.#attempts.delete(uid)
  }

  /** Those of them that could begin now. */
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

  /** Cores of those that are with the backend. */
  get givenCores(): number {
    return this.#givenCores
  }

  /** The next ones for the backend, until they hold this many cores. */
  give(mostCores: number): { readonly jobs: readonly HeldAttempt[]; readonly cores: number } {
    const jobs: HeldAttempt[] = []
    let cores = 0
    while (cores < mostCores) {
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

  /** It is not with the backend any more. */
  leave(held: HeldAttempt): void {
    if (held.isGiven) this.#givenCores -= held.spec.resources.cores
    held.isGiven = false
  }

  /** Those that the backend had and has not begun. */
  putBack(held: readonly HeldAttempt[]): void {
    for (const one of held) {
      this.leave(one)
      one.isWaiting = true
      one.isQueued = true
    }
    this.#queue.putBack(held)
  }

  /** What waits beyond what is offered and a second's work, if it may begin elsewhere sooner. */
  excess(
    ahead: number,
    { canPlaceMore, waitingPriorities }: PlacingDriver,
  ): readonly HeldAttempt[] {
    const most = Math.ceil(Math.max(ahead, this.rate ?? 0))
    if (this.#queue.length <= most) return []
    const queued = this.waiting.filter(({ isQueued }) => isQueued).toSorted(byTurn)
    const { lowest, highest } = waitingPriorities ?? { lowest: Infinity, highest: -Infinity }
    // Others are sent what is less urgent meanwhile, and what is more urgent needs the room. What
    // is as urgent as all that waits there would come back in its turn.
    const isOutOfTurn = ({ spec }: HeldAttempt): boolean =>
      spec.priority > lowest || spec.priority < highest
    const excess = new Set(queued.slice(most).filter(isOutOfTurn))
    if (!canPlaceMore) return [...excess]
    const left = queued.filter((held) => !excess.has(held))
    return [...excess, ...left.slice(Math.max(2 * ahead + 8, most))]
  }

  /** Those that are not with the backend. */
  get waiting(): HeldAttempt[] {
    return this.toArray().filter(({ isWaiting }) => isWaiting)
  }

  /** As a driver that attaches is told of them. */
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
    this.#shortEnds = isShort
      ? Math.min(2 * fewestShort, this.#shortEnds + 1)
      : this.#shortEnds >> 1
  }

  #leave(): void {
    if (--this.#size > 0 || this.#busySinceMs === null) return
    this.#hasRunDry = true
    this.#busyMs += this.#clock.monotonicMs() - this.#busySinceMs
    this.#busySinceMs = null
  }

  #measure(nowMs: number): void {
    const currentMs = this.#busySinceMs === null ? 0 : nowMs - this.#busySinceMs
    const busyMs = this.#busyMs + currentMs
    // Without work, or without a first end, nothing is known about the next tasks.
    if (busyMs === 0 || (this.#rate === null && this.#ends === 0)) return
    // One that takes long is no reason to forget how fast the others were, for a while.
    if (this.#ends === 0 && nowMs - this.#measuredMs < staleMs) return
    this.#rate = (this.#ends * 1000) / Math.max(busyMs, shortestMs)
    const possible = (this.#begunEnds * 1000) / Math.max(this.#ranMs, shortestMs)
    const lift = this.#shortEnds < fewestShort ? 1 : mostLift
    this.#liftedRate = Math.min(possible, this.#rate * lift, liftedPerSecond)
    const isStarved = this.#hasRunDry && this.#hasDriverMore()
    const factor = isStarved ? this.#aheadFactor * 2 : this.#aheadFactor / 2
    this.#aheadFactor = Math.max(1, Math.min(largestFactor, factor))
    this.#hasRunDry = false
    this.#ends = 0
    this.#begunEnds = 0
    this.#ranMs = 0
    this.#busyMs = 0
    if (this.#busySinceMs !== null) this.#busySinceMs = nowMs
    this.#measuredMs = nowMs
  }
}
