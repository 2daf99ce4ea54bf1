/**
 * Admits lists of tasks: checks all of them first, then opens them in slices, so that the event
 * loop stays responsive and slow backends slow the caller down.
 */

import type { AnyTask } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError } from '../foundation/errors.ts'
import { notAnArray } from '../foundation/options.ts'
import { Fifo } from '../runtime/fifo.ts'
import { TurnBudget } from '../runtime/turn-budget.ts'
import { Task } from '../tasks/task.ts'
import type { BackendBinding, Entry } from './entry.ts'
import { definitionHash } from '../tasks/definition-hash.ts'
import type { Ledger } from './ledger.ts'
import {
  alreadySubmitted,
  notATask,
  type Problem,
  route,
  toSubmissionError,
  type Wrong,
} from './routing.ts'

/** The maximum number of tasks opened per turn of the event loop, over all submissions. */
const opensPerTurn = 250
/** At this many open tasks, a submission waits until there is room for a slice. */
const maxOpen = 100_000
/** Larger than `opensPerTurn`, because checking a task is cheaper than opening it. */
const checksPerTurn = 10_000

export interface AdmissionParts {
  readonly clock: Clock
  readonly ledger: Ledger
  /** In the order in which the backends were added. */
  readonly bindings: readonly BackendBinding[]
}

/** What the record of an earlier run says about tasks. */
export interface RecordedRun {
  /** Why a task may not be submitted, or `null`. */
  problemOf(task: AnyTask): Problem | null
  /** Called before `plan` for all tasks of a submission, to detect functions with equal source. */
  prepare(task: AnyTask): void
  /** Called when a submission has been accepted and all its tasks are planned. */
  accepted(): void
  /**
   * Looks up a task in the record. Returns a number for `setPlan`, which is positive if the task
   * will not run. Must be called in the order of the tasks.
   */
  plan(task: AnyTask): number
  /** Stores what was planned for a task that is being opened. */
  setPlan(entry: Entry, planned: number): void
  /**
   * The error if a task must not run, because a task whose function has the same source was given
   * a recorded value; otherwise `null`.
   */
  refusalOf(entry: Entry): StateError | null
  /** Ends a task as it ended in the earlier run; `false` if the task has to run. */
  end(entry: Entry): boolean
}

/** The tasks that passed the checks. While a task is being routed, it has no target yet. */
interface Accepted {
  readonly tasks: AnyTask[]
  readonly targets: BackendBinding[]
  /** The result of `RecordedRun.plan` for each task; `null` without an earlier run. */
  readonly planned: Int32Array | null
}

export class Admission {
  /** Set before the first submission. */
  earlier: RecordedRun | null = null
  readonly #parts: AdmissionParts
  readonly #budget: TurnBudget
  /** Submissions that wait until earlier ones have been opened. */
  readonly #queue = new Fifo<() => void>()
  #isOpening = false
  /** Unfinished checks of lists that are too long for one turn. */
  readonly #checks = new Set<Promise<void>>()
  #room: PromiseWithResolvers<void> | null = null
  /** The number of running submissions. `#idle` resolves when the last one ends. */
  #submissions = 0
  #idle: PromiseWithResolvers<void> | null = null
  #isClosed = false

  constructor(parts: AdmissionParts) {
    this.#parts = parts
    this.#budget = new TurnBudget(parts.clock, opensPerTurn)
  }

  /**
   * Submits all tasks or none: the error lists all problems, and then no task has changed. If the
   * session is closed meanwhile, all tasks of the list end CANCELED.
   */
  async submit(tasks: unknown): Promise<void> {
    this.expectOpen()
    if (!Array.isArray(tasks)) throw notAnArray('tasks', 'tasks', tasks, '[task]')
    let accepted: Accepted = { tasks: [], targets: [], planned: null }
    let opened = 0
    let hasTurn = false
    this.#submissions++
    try {
      const items = [...(tasks as unknown[])]
      const wrong: Wrong[] = []
      this.#checkSome(items, 0, accepted, wrong)
      if (items.length > checksPerTurn) await this.#checkRest(items, accepted, wrong)
      if (wrong.length > 0) throw toSubmissionError(wrong)
      if (accepted.tasks.length === 0) return
      if (this.#isOpening) await new Promise<void>((start) => this.#queue.push(start))
      this.#isOpening = hasTurn = true
      if (this.earlier !== null) accepted = await this.#runFirst(accepted, this.earlier)
      let wasClosed = false
      while (opened < accepted.tasks.length) {
        wasClosed = this.#isClosed
        const room = this.#roomForTasks()
        if (room > 0) opened += this.#open(accepted, opened, room)
        else await this.#waitForRoom()
      }
      if (wasClosed) throw closedError('the session was closed, and all of these tasks canceled')
    } catch (error) {
      for (const task of accepted.tasks.slice(opened)) this.#parts.ledger.withdraw(task, error)
      throw error
    } finally {
      if (hasTurn) this.#startNext()
      this.#submissions--
      if (this.#submissions === 0) this.#idle?.resolve()
    }
  }

  /** Resolves when all tasks submitted so far have been checked; `null` if they already are. */
  get checks(): Promise<unknown> | null {
    return this.#checks.size === 0 ? null : Promise.allSettled(this.#checks)
  }

  /** Called when a task has ended, so that a waiting submission may continue. */
  makeRoom(): void {
    if (this.#room === null || this.#parts.ledger.openTasks > maxOpen - opensPerTurn) return
    this.#room.resolve()
    this.#room = null
  }

  /** Throws after `close()`. */
  expectOpen(): void {
    if (this.#isClosed) throw closedError('the session is closed')
  }

  /**
   * Resolves when the tasks of all running submissions have been canceled; `null` if there are
   * none.
   */
  close(): Promise<void> | null {
    this.#isClosed = true
    this.#room?.resolve()
    this.#room = null
    if (this.#submissions === 0) return null
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  async #checkRest(items: readonly unknown[], accepted: Accepted, wrong: Wrong[]): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>()
    this.#checks.add(promise)
    try {
      for (let from = checksPerTurn; from < items.length; from += checksPerTurn) {
        await this.#budget.nextTurn()
        this.#checkSome(items, from, accepted, wrong)
      }
    } finally {
      this.#checks.delete(promise)
      resolve()
    }
  }

  #checkSome(items: readonly unknown[], from: number, accepted: Accepted, wrong: Wrong[]): void {
    const until = Math.min(from + checksPerTurn, items.length)
    for (let at = from; at < until; at++) {
      const problem = this.#check(items[at], accepted)
      if (problem !== null) wrong.push({ at, ...problem })
    }
  }

  #check(item: unknown, accepted: Accepted): Problem | null {
    const { ledger, bindings } = this.#parts
    if (!(item instanceof Task)) return notATask(item)
    const task = item as AnyTask
    if (!ledger.claim(task)) return alreadySubmitted(task)
    // Pushed before routing, so that the claim is withdrawn with the others if a backend throws.
    accepted.tasks.push(task)
    const found = route(task, bindings)
    const changed = this.earlier?.problemOf(task) ?? null
    if ('binding' in found && changed === null) {
      accepted.targets.push(found.binding)
      return null
    }
    accepted.tasks.pop()
    ledger.withdraw(task, null)
    return 'binding' in found ? changed : found.problem
  }

  #startNext(): void {
    const start = this.#queue.shift()
    if (start === undefined) this.#isOpening = false
    else start()
  }

  /** Opens up to `max` tasks, submits them to their backends, and returns their number. */
  #open({ tasks, targets, planned }: Accepted, from: number, max: number): number {
    const { ledger } = this.#parts
    const until = Math.min(from + max, tasks.length)
    const entries: Entry[] = []
    for (let at = from; at < until; at++) {
      const task = tasks[at]
      const target = targets[at]
      if (task === undefined || target === undefined) continue
      if (planned === null) entries.push(ledger.open(task, target))
      else this.#openAgain(task, target, planned[at] ?? 0, entries)
    }
    this.#budget.spend(until - from)
    ledger.submit(entries)
    return until - from
  }

  /**
   * Moves the tasks that have to run to the front, so that they need not wait until the recorded
   * results of up to a million other tasks have been copied to the new record.
   */
  async #runFirst({ tasks, targets }: Accepted, earlier: RecordedRun): Promise<Accepted> {
    const plans: number[] = []
    // Prepares all tasks before planning any: if a later task has a function with equal source,
    // neither of the two may be given a recorded value.
    await this.#forEach(tasks, (task) => earlier.prepare(task))
    await this.#forEach(tasks, (task) => void plans.push(earlier.plan(task)))
    earlier.accepted()
    const indexes = [...plans.keys()]
    const willEnd = (at: number): boolean => (plans[at] ?? 0) > 0
    const order = [...indexes.filter((at) => !willEnd(at)), ...indexes.filter(willEnd)]
    return {
      tasks: order.flatMap((at) => tasks[at] ?? []),
      targets: order.flatMap((at) => targets[at] ?? []),
      planned: Int32Array.from(order, (at) => plans[at] ?? 0),
    }
  }

  async #forEach(tasks: readonly AnyTask[], use: (task: AnyTask) => void): Promise<void> {
    for (const [at, task] of tasks.entries()) {
      if (at > 0 && at % checksPerTurn === 0) await this.#budget.nextTurn()
      use(task)
    }
  }

  /** Defers the task first, because a task that an earlier run completed is not dispatched. */
  #openAgain(task: AnyTask, target: BackendBinding, planned: number, entries: Entry[]): void {
    const { ledger } = this.#parts
    const entry = ledger.defer(task, {
      executable: task.spec.executable,
      name: task.name,
      definitionHash: () => definitionHash(task, ledger),
      plan: (opened) => this.earlier?.setPlan(opened, planned),
      expected: { work: task, target },
    })
    const error = this.earlier?.refusalOf(entry) ?? null
    if (error !== null) return ledger.end(entry, { kind: 'fail', error })
    if (this.earlier?.end(entry) === true) return
    ledger.dispatch(entry, task, target)
    entries.push(entry)
  }

  /** A closed session ignores `maxOpen`, because the ledger cancels each task immediately. */
  #roomForTasks(): number {
    const { left } = this.#budget
    return this.#isClosed ? left : Math.min(left, maxOpen - this.#parts.ledger.openTasks)
  }

  #waitForRoom(): Promise<void> {
    if (this.#budget.left <= 0) return this.#budget.nextTurn()
    this.#room ??= Promise.withResolvers()
    return this.#room.promise
  }
}

const closedError = (text: string): StateError =>
  new StateError(text, { code: 'SessionClosedError', hint: 'Create a new session.' })
