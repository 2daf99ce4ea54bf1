/** Virtual time: events happen one after another, and no time passes in between. */

import type { Clock } from '../../src/foundation/clock.ts'
import { PriorityQueue } from '../../src/runtime/priority-queue.ts'

interface TimedEvent {
  readonly atMs: number
  readonly number: number
  readonly happen: () => void
  isCanceled: boolean
}

const startSeconds = 1_700_000_000

export class VirtualTime {
  nowMs = 0
  readonly #events = new PriorityQueue<TimedEvent>(
    (a, b) => a.atMs < b.atMs || (a.atMs === b.atMs && a.number < b.number),
  )
  #number = 0

  /** Returns a function that cancels the event. */
  at(atMs: number, happen: () => void): () => void {
    const event = {
      atMs: Math.max(this.nowMs, atMs),
      number: ++this.#number,
      happen,
      isCanceled: false,
    }
    this.#events.add(event)
    return () => {
      event.isCanceled = true
    }
  }

  after(ms: number, happen: () => void): () => void {
    return this.at(this.nowMs + ms, happen)
  }

  /** Runs until `isOver`, or until `untilMs`. Promises settle after each event. */
  async run(untilMs: number, isOver: () => boolean): Promise<void> {
    while (this.#step(untilMs, isOver)) {
      await new Promise<void>((resolve) => {
        setImmediate(resolve)
      })
    }
  }

  /** Like `run`, for events that use no promises. */
  runSync(untilMs: number, isOver: () => boolean): void {
    while (this.#step(untilMs, isOver));
  }

  #step(untilMs: number, isOver: () => boolean): boolean {
    if (isOver()) return false
    for (;;) {
      const next = this.#events.peek()
      if (next === undefined || next.atMs > untilMs) return false
      this.#events.pop()
      if (next.isCanceled) continue
      this.nowMs = next.atMs
      next.happen()
      return true
    }
  }
}

/** A process in virtual time. It can be killed, or stopped and continued. */
export class SimulatedProcess {
  readonly clock: Clock
  readonly #time: VirtualTime
  #wallSeconds = startSeconds
  #isAlive = true
  /** What happened to the process while it was stopped; `null` while it runs. */
  #deferred: (() => void)[] | null = null

  constructor(time: VirtualTime) {
    this.#time = time
    this.clock = {
      now: () => this.#wallSeconds + time.nowMs / 1000,
      monotonicMs: () => time.nowMs,
      after: (ms, callback) => this.#after(ms, callback),
      nextTurn: (callback) => void this.#after(0, callback),
    }
  }

  get isAlive(): boolean {
    return this.#isAlive
  }

  get isRunning(): boolean {
    return this.#isAlive && this.#deferred === null
  }

  /** Runs now, after the process has been continued, or never if it is dead. */
  do(action: () => void): void {
    if (!this.#isAlive) return
    if (this.#deferred === null) action()
    else this.#deferred.push(action)
  }

  kill(): void {
    this.#isAlive = false
    this.#deferred = null
  }

  stop(): void {
    if (this.isRunning) this.#deferred = []
  }

  continue(): void {
    const deferred = this.#deferred ?? []
    this.#deferred = null
    for (const action of deferred) this.#time.after(0, () => this.do(action))
  }

  setWallClock(bySeconds: number): void {
    this.#wallSeconds += bySeconds
  }

  #after(ms: number, callback: () => void): () => void {
    let isCanceled = false
    const cancel = this.#time.after(ms, () => this.do(() => (isCanceled ? undefined : callback())))
    return () => {
      isCanceled = true
      cancel()
    }
  }
}
