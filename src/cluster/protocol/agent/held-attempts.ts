/** The attempts that an agent holds for a session, queued or submitted to the node's backend. */

import type { Job, OutputFiles } from '../../../backends/backend.ts'
import { TaggedJob } from '../../../backends/job-tag.ts'
import { byTurn, JobQueue } from '../../../backends/local/job-queue.ts'
import type { TaskSpec } from '../../../tasks/spec.ts'
import type { HeldJob, PriorityRange, SentJob } from '../../wire/messages.ts'
import { WorkRate } from './work-rate.ts'

/** An attempt of one start of a driver. Also the job that the node's backend runs. */
export class HeldAttempt extends TaggedJob implements Job {
  readonly sessionId: string
  readonly index: number
  readonly uid: string
  readonly attempt: number
  readonly driverStart: number
  readonly sequence: number
  /** The spec as it was sent; from `ready` on, with paths of this node. */
  spec: TaskSpec
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

  constructor(sessionId: string, driverStart: number, job: SentJob, spec: TaskSpec, order: number) {
    super()
    this.sessionId = sessionId
    this.driverStart = driverStart
    this.index = job.index
    this.uid = job.uid
    this.attempt = job.attempt
    this.spec = spec
    this.sequence = order
  }

  get isRetry(): boolean {
    return this.attempt > 1
  }
}

/** What identifies an attempt, and when and where it began. */
export const toHeldJob = (one: HeldJob): HeldJob => {
  const { uid, attempt, driverStart, beganMs, workerId } = one
  return { uid, attempt, driverStart, beganMs, workerId }
}

/** The attempts of a session, at most one of each task. */
export class HeldAttempts {
  readonly work: WorkRate
  readonly #attempts = new Map<string, HeldAttempt>()
  readonly #queue = new JobQueue<HeldAttempt>()
  #submittedCores = 0

  constructor(nowMs: number) {
    this.work = new WorkRate(nowMs)
  }

  get size(): number {
    return this.work.size
  }

  get(uid: string): HeldAttempt | undefined {
    return this.#attempts.get(uid)
  }

  add(held: HeldAttempt, nowMs: number): void {
    this.#attempts.set(held.uid, held)
    held.isHeld = true
    this.work.countAdded(nowMs)
  }

  markEnded(held: HeldAttempt, atMs: number, nowMs: number): void {
    this.#remove(held)
    this.work.countEnded(held.beganMs === null ? null : atMs - held.beganMs, nowMs)
  }

  delete(held: HeldAttempt, nowMs: number): void {
    this.#remove(held)
    this.work.countRemoved(nowMs)
  }

  get queued(): number {
    return this.#queue.length
  }

  enqueue(held: HeldAttempt): void {
    held.isQueued = true
    this.#queue.push(held)
  }

  get submittedCores(): number {
    return this.#submittedCores
  }

  /** Takes attempts from the queue until they use `maxCores`. */
  takeFromQueue(maxCores: number): readonly HeldAttempt[] {
    const jobs: HeldAttempt[] = []
    let cores = 0
    while (cores < maxCores) {
      const held = this.#queue.pop()
      if (held === undefined) break
      held.isQueued = false
      held.isWaiting = false
      held.isSubmitted = true
      cores += held.spec.resources.cores
      jobs.push(held)
    }
    this.#submittedCores += cores
    return jobs
  }

  releaseCores(held: HeldAttempt): void {
    if (held.isSubmitted) this.#submittedCores -= held.spec.resources.cores
    held.isSubmitted = false
  }

  /** Puts back attempts that the node's backend has not begun. */
  requeue(withdrawn: readonly HeldAttempt[]): void {
    for (const one of withdrawn) this.releaseCores(one)
    const back = withdrawn.filter(({ isHeld }) => isHeld)
    for (const one of back) {
      one.isWaiting = true
      one.isQueued = true
    }
    this.#queue.requeue(back)
  }

  /**
   * Finds queued attempts beyond both the offer and one second of work, which another node may
   * begin sooner. If `canPlace` is `false`, the driver has no idle cores, so returned jobs would
   * only move from one agent to another.
   */
  findExcess(
    ahead: number,
    { canPlace, range }: { readonly canPlace: boolean; readonly range: PriorityRange | null },
    nowMs: number,
  ): readonly HeldAttempt[] {
    const max = Math.ceil(Math.max(ahead, this.work.rate(nowMs) ?? 0))
    if (this.#queue.length <= max) return []
    const queued = this.waiting.filter(({ isQueued }) => isQueued).toSorted(byTurn)
    const { lowest, highest } = range ?? { lowest: Infinity, highest: -Infinity }
    // Attempts that are out of turn are always returned: either another node would run them before
    // lower-priority jobs, or they delay higher-priority jobs here. Other attempts are returned
    // only if the driver can place them elsewhere.
    const isOutOfTurn = ({ spec }: HeldAttempt): boolean =>
      spec.priority > lowest || spec.priority < highest
    const excess = new Set(queued.slice(max).filter(isOutOfTurn))
    if (!canPlace) return [...excess]
    const others = queued.filter((held) => !excess.has(held))
    return [...excess, ...others.slice(Math.max(2 * ahead + 8, max))]
  }

  get waiting(): HeldAttempt[] {
    return this.toArray().filter(({ isWaiting }) => isWaiting)
  }

  toArray(): HeldAttempt[] {
    return [...this.#attempts.values()]
  }

  #remove(held: HeldAttempt): void {
    this.#attempts.delete(held.uid)
    held.isHeld = false
    if (held.isQueued) this.#queue.remove(held)
    held.isQueued = false
  }
}
