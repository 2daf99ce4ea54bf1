/** Limits how many tasks with the same name run at a time, and how many start per second. */

import type { Clock } from '../../foundation/clock.ts'
import {
  expectInteger,
  expectKnownKeys,
  expectNumber,
  expectObject,
  invalid,
} from '../../foundation/options.ts'
import type { JsonObject } from '../../foundation/json-value.ts'
import { maskSecrets } from '../../foundation/secrets.ts'
import { Fifo } from '../../runtime/fifo.ts'
import { PriorityQueue, type QueueEntry } from '../../runtime/priority-queue.ts'

/** The limit of a name. At least one of the two fields is required. */
export interface NameLimit {
  /** The maximum number of tasks with this name that backends hold at a time. Default: no limit. */
  readonly concurrent?: number
  /**
   * The maximum number of attempts with this task name that start per second. Default: no limit.
   */
  readonly perSecond?: number
}

/** The limits of tasks, by name. */
export type NameLimitOptions = Readonly<Record<string, NameLimit>>

/** Validates the limits. A name that no task has is accepted. */
export function resolveNameLimits(given: unknown): NameLimitOptions {
  const limits = expectObject('limits', given)
  // A Map or an inherited object is rejected, because limits in it would not be found.
  const prototype: unknown = Object.getPrototypeOf(limits)
  if (prototype !== null && Object.getPrototypeOf(prototype) !== null) {
    throw invalid('limits', 'a plain object with limits as its own properties', given)
  }
  for (const [name, limit] of Object.entries(limits)) {
    const field = `limits.${name}`
    const { concurrent, perSecond } = expectObject(field, limit)
    expectKnownKeys(field, limit as object, ['concurrent', 'perSecond'], `${field}.`)
    if (concurrent !== undefined) expectInteger(`${field}.concurrent`, concurrent, { min: 1 })
    if (perSecond !== undefined) {
      expectNumber(`${field}.perSecond`, perSecond, { above: 0, max: maxPerSecond })
    }
    if (concurrent === undefined && perSecond === undefined) {
      throw invalid(field, 'an object with `concurrent`, `perSecond` or both', limit)
    }
  }
  return given as NameLimitOptions
}

/** Converts the limits to an attribute of SessionStarted. */
export const toWireLimits = (limits: NameLimitOptions): JsonObject =>
  Object.fromEntries(
    Object.entries(limits).map(([name, { concurrent = null, perSecond = null }]) => [
      maskSecrets(name),
      { concurrent, per_second: perSecond },
    ]),
  )

/**
 * The maximum of `perSecond`, which limits the memory for the times of starts within the window.
 */
const maxPerSecond = 1_000_000

/** An attempt of a task with a limited name. Only `NameLimits` may change it. */
export interface LimitedAttempt<T> {
  readonly item: T
  readonly priority: number
  readonly isRetry: boolean
  readonly number: number
  readonly group: NameGroup<T>
  phase: 'waiting' | 'released' | 'started' | 'ended'
  queued: QueueEntry | null
}

interface NameGroup<T> {
  readonly maxConcurrent: number
  readonly maxStarts: number
  readonly windowMs: number
  readonly waiting: PriorityQueue<LimitedAttempt<T>>
  readonly startTimesMs: Fifo<number>
  /** The number of attempts that were released and have not ended. */
  active: number
  /** The number of attempts that were released and have not started. */
  notStarted: number
  isReleasing: boolean
  cancelTimer: (() => void) | null
}

export class NameLimits<T> {
  readonly #groups: ReadonlyMap<string, NameGroup<T>>
  readonly #clock: Clock
  readonly #release: (item: T) => void
  #nextNumber = 0

  /** `release` is called for each attempt that may begin. */
  constructor(limits: NameLimitOptions, clock: Clock, release: (item: T) => void) {
    const toGroup = ([name, limit]: [string, NameLimit]) => [name, newGroup<T>(limit)] as const
    this.#groups = new Map(Object.entries(limits).map(toGroup))
    this.#clock = clock
    this.#release = release
  }

  has(name: string): boolean {
    return this.#groups.has(name)
  }

  /**
   * Queues an attempt until `advance` releases it. Returns `null` if the name has no limit. The
   * order is by priority, then retries before new tasks, then first come, first served.
   */
  add(
    name: string,
    about: Pick<LimitedAttempt<T>, 'item' | 'priority' | 'isRetry'>,
  ): LimitedAttempt<T> | null {
    const group = this.#groups.get(name)
    if (group === undefined) return null
    const number = this.#nextNumber++
    const attempt: LimitedAttempt<T> = { ...about, number, group, phase: 'waiting', queued: null }
    attempt.queued = group.waiting.add(attempt)
    return attempt
  }

  /** Marks a released attempt as started. Repeated calls have no effect. */
  start(attempt: LimitedAttempt<T>): void {
    const { group } = attempt
    if (attempt.phase !== 'released') return
    attempt.phase = 'started'
    group.notStarted--
    if (group.maxStarts === Infinity) return
    group.startTimesMs.push(this.#clock.monotonicMs())
    // Sets the timer for the next attempt, which may begin before this attempt has ended.
    this.advance(attempt)
  }

  /**
   * Must be called when the attempt has ended or was withdrawn while it waited, so that another one
   * may begin.
   */
  end(attempt: LimitedAttempt<T>): void {
    const { group, phase, queued } = attempt
    attempt.phase = 'ended'
    if (phase === 'ended') return
    if (phase === 'waiting' && queued !== null) group.waiting.remove(queued)
    if (phase !== 'waiting') group.active--
    if (phase === 'released') group.notStarted--
    this.advance(attempt)
  }

  advance({ group }: LimitedAttempt<T>): void {
    // `#release` may synchronously end the attempt, which calls this method again.
    if (group.isReleasing) return
    group.isReleasing = true
    group.cancelTimer?.()
    group.cancelTimer = null
    while (group.waiting.size > 0 && this.#hasRoom(group)) {
      const next = group.waiting.pop()
      if (next === undefined) break
      next.phase = 'released'
      group.active++
      group.notStarted++
      this.#release(next.item)
    }
    group.isReleasing = false
    if (group.waiting.size > 0) this.#setTimer(group)
  }

  /**
   * Whether another attempt may be released. A released attempt may start at any time, so it
   * already counts for the current window.
   */
  #hasRoom(group: NameGroup<T>): boolean {
    const { active, maxConcurrent, startTimesMs, maxStarts, windowMs, notStarted } = group
    const since = this.#clock.monotonicMs() - windowMs
    while ((startTimesMs.peek() ?? Infinity) <= since) startTimesMs.shift()
    return active < maxConcurrent && startTimesMs.length + notStarted < maxStarts
  }

  /**
   * Sets a timer for when the earliest start leaves the window. An attempt that waits for another
   * attempt to end needs no timer.
   */
  #setTimer(group: NameGroup<T>): void {
    const firstStartMs = group.startTimesMs.peek()
    if (firstStartMs === undefined || group.active >= group.maxConcurrent) return
    const attempt = group.waiting.peek()
    if (attempt === undefined) return
    const waitMs = firstStartMs + group.windowMs - this.#clock.monotonicMs()
    group.cancelTimer = this.#clock.after(Math.max(1, waitMs), () => this.advance(attempt))
  }
}

/** A fractional rate gets a longer window: 0.5 per second is one start within two seconds. */
function newGroup<T>({ concurrent = Infinity, perSecond = Infinity }: NameLimit): NameGroup<T> {
  const starts = Math.ceil(perSecond)
  return {
    maxConcurrent: concurrent,
    maxStarts: starts,
    windowMs: perSecond === Infinity ? 0 : (1000 * starts) / perSecond,
    waiting: new PriorityQueue(isBefore),
    startTimesMs: new Fifo(),
    active: 0,
    notStarted: 0,
    isReleasing: false,
    cancelTimer: null,
  }
}

function isBefore<T>(a: LimitedAttempt<T>, b: LimitedAttempt<T>): boolean {
  if (a.priority !== b.priority) return a.priority > b.priority
  return a.isRetry === b.isRetry ? a.number < b.number : a.isRetry
}
