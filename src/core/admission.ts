/**
 * Takes lists of tasks in: checks them all, then hands them over in slices that leave the loop
 * free.
 */

import type { AnyTask, Backend } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError } from '../foundation/errors.ts'
import { Fifo } from '../runtime/fifo.ts'
import { invalid } from '../foundation/options.ts'
import { Task } from '../tasks/task.ts'
import { Delivery, type Seat } from './dispatch-batch.ts'
import type { Ledger } from './ledger.ts'
import { alreadySubmitted, notATask, route, toSubmissionError, type Wrong } from './routing.ts'
import type { SignalWatch } from './signals.ts'

/** Tasks per turn of the loop, of all submissions together. */
const sliceSize = 250
/** With so many tasks open, a submission waits until there is room for a slice. */
const mostOpen = 100_000
/** A check is cheaper than a hand-over. */
const checksPerTurn = 10_000

export interface IntakeParts {
  readonly clock: Clock
  readonly ledger: Ledger
  readonly signals: SignalWatch
  /** In the order in which they were added. */
  readonly seats: () => readonly Seat[]
}

/** Somebody who waits for a task's end, and may give that up. */
export interface Watcher {
  readonly hear: () => void
  /** The task was not handed over after all. */
  readonly fail: (error: unknown) => void
}

/** What passed the check; the lists run side by side. */
interface Accepted {
  readonly tasks: AnyTask[]
  readonly seats: Seat[]
}

export class Intake {
  readonly #parts: IntakeParts
  /** Why some of those that were accepted are to end as soon as they are open. */
  readonly #cancelReasons = new Map<AnyTask, string>()
  /** Who waits for the ends of some of those. */
  readonly #watchers = new Map<AnyTask, Set<Watcher>>()
  /** Lists that wait until those before them are handed over. */
  readonly #line = new Fifo<() => void>()
  #isHandingOver = false
  /** The checks of long lists that are under way. */
  readonly #checks = new Set<Promise<void>>()
  #leftThisTurn = sliceSize
  #turn: Promise<void> | null = null
  #credit: PromiseWithResolvers<void> | null = null
  #isClosed = false

  constructor(parts: IntakeParts) {
    this.#parts = parts
  }

  /** All or nothing: an error names everything that is wrong, and then no task was touched. */
  async submit(tasks: unknown): Promise<void> {
    this.#expectOpen()
    if (!Array.isArray(tasks)) throw invalid('tasks', 'an array of tasks', tasks)
    const accepted: Accepted = { tasks: [], seats: [] }
    let done = 0
    let isInside = false
    try {
      const items = [...(tasks as unknown[])]
      const wrong: Wrong[] = []
      this.#acceptSome(items, 0, accepted, wrong)
      if (items.length > checksPerTurn) await this.#acceptRest(items, accepted, wrong)
      if (wrong.length > 0) throw toSubmissionError(wrong)
      if (accepted.tasks.length === 0) return
      if (this.#isHandingOver) await new Promise<void>((enter) => this.#line.push(enter))
      this.#isHandingOver = isInside = true
      while (done < accepted.tasks.length) {
        this.#expectOpen()
        const room = Math.min(this.#leftThisTurn, mostOpen - this.#parts.ledger.openTasks)
        if (room > 0) this.#handOver(accepted, done, (done += room))
        else await this.#untilRoom()
      }
    } catch (error) {
      for (const task of accepted.tasks.slice(done)) this.#giveUp(task, error)
      throw error
    } finally {
      if (isInside) this.#letNextIn()
    }
  }

  /** Asks for the end of a task that is accepted but not yet with the ledger. */
  requestCancel(task: AnyTask, reason: string): boolean {
    if (!this.#parts.ledger.isPromised(task) || this.#cancelReasons.has(task)) return false
    this.#cancelReasons.set(task, reason)
    return true
  }

  /** Hears of the end of a task that is accepted but not yet with the ledger. */
  watch(task: AnyTask, watcher: Watcher): void {
    const watchers = this.#watchers.get(task)
    if (watchers === undefined) this.#watchers.set(task, new Set([watcher]))
    else watchers.add(watcher)
  }

  /** Wherever the task is by now. */
  unwatch(task: AnyTask, watcher: Watcher): void {
    this.#parts.ledger.find(task)?.waiters?.delete(watcher.hear)
    const watchers = this.#watchers.get(task)
    watchers?.delete(watcher)
    if (watchers?.size === 0) this.#watchers.delete(task)
  }

  /** Resolves when all that was submitted by now is checked; `null` when it is already. */
  get checks(): Promise<unknown> | null {
    return this.#checks.size === 0 ? null : Promise.allSettled(this.#checks)
  }

  /** A task has ended: whoever waits for room may go on. */
  makeRoom(): void {
    if (this.#credit === null || this.#parts.ledger.openTasks > mostOpen - sliceSize) return
    this.#credit.resolve()
    this.#credit = null
  }

  close(): void {
    this.#isClosed = true
    this.#credit?.resolve()
    this.#credit = null
  }

  /** One more slice in each turn of the loop. */
  async #acceptRest(items: readonly unknown[], accepted: Accepted, wrong: Wrong[]): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#checks.add(promise)
    try {
      for (let from = checksPerTurn; from < items.length; from += checksPerTurn) {
        await this.#nextTurn()
        this.#acceptSome(items, from, accepted, wrong)
      }
    } finally {
      this.#checks.delete(promise)
      resolve()
    }
  }

  #acceptSome(items: readonly unknown[], from: number, accepted: Accepted, wrong: Wrong[]): void {
    const seats = this.#parts.seats()
    const backends = seats.map(({ backend }) => backend)
    const until = Math.min(from + checksPerTurn, items.length)
    for (let at = from; at < until; at++) {
      const item = items[at]
      const found = this.#accept(item, backends)
      if ('problem' in found) {
        wrong.push({ at, ...found.problem })
        continue
      }
      const seat = seats[backends.indexOf(found.backend)]
      if (seat === undefined) continue
      accepted.tasks.push(item as AnyTask)
      accepted.seats.push(seat)
    }
  }

  #accept(item: unknown, backends: readonly Backend[]): ReturnType<typeof route> {
    if (!(item instanceof Task)) return { problem: notATask(item) }
    const task = item as AnyTask
    const { ledger } = this.#parts
    const found = route(task, backends)
    if (!ledger.bind(task)) return { problem: alreadySubmitted(task) }
    if ('problem' in found) ledger.unbind(task, null)
    return found
  }

  #letNextIn(): void {
    const next = this.#line.shift()
    if (next === undefined) this.#isHandingOver = false
    else next()
  }

  #giveUp(task: AnyTask, cause: unknown): void {
    this.#cancelReasons.delete(task)
    for (const { fail } of this.#takeWatchers(task)) void task.then(undefined, fail)
    this.#parts.ledger.unbind(task, cause)
  }

  #handOver({ tasks, seats }: Accepted, from: number, until: number): void {
    const { ledger, signals } = this.#parts
    const delivery = new Delivery(ledger)
    for (let at = from; at < until; at++) {
      const task = tasks[at]
      const seat = seats[at]
      if (task === undefined || seat === undefined) break
      this.#leftThisTurn--
      const entry = ledger.open(task)
      for (const { hear } of this.#takeWatchers(task)) (entry.waiters ??= new Set()).add(hear)
      this.#cancelIfAsked(task)
      signals.watch(task)
      delivery.add(entry, seat)
    }
    delivery.submit()
  }

  #takeWatchers(task: AnyTask): Iterable<Watcher> {
    const watchers = this.#watchers.size === 0 ? undefined : this.#watchers.get(task)
    if (watchers === undefined) return []
    this.#watchers.delete(task)
    return watchers
  }

  #cancelIfAsked(task: AnyTask): void {
    const reason = this.#cancelReasons.size === 0 ? undefined : this.#cancelReasons.get(task)
    if (reason === undefined) return
    this.#cancelReasons.delete(task)
    this.#parts.ledger.requestCancel(task, reason)
  }

  async #untilRoom(): Promise<void> {
    if (this.#leftThisTurn <= 0) return this.#nextTurn()
    this.#credit ??= Promise.withResolvers()
    return this.#credit.promise
  }

  #nextTurn(): Promise<void> {
    this.#turn ??= new Promise((resolve) =>
      this.#parts.clock.nextTurn(() => {
        this.#turn = null
        this.#leftThisTurn = sliceSize
        resolve()
      }),
    )
    return this.#turn
  }

  #expectOpen(): void {
    if (this.#isClosed) throw closedError()
  }
}

/** What everything gets that comes after the end. */
export function closedError(): StateError {
  return new StateError('the session is closed', {
    code: 'SessionClosedError',
    hint: 'Make a new one.',
  })
}
