/**
 * Admits lists of tasks. Checks a whole list first, and then opens its tasks: emits TaskCreated and
 * submits them to backends. Works in slices to keep the event loop responsive.
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
import type { RecordedPlan } from './resume/recorded-tasks.ts'
import type { SessionResume } from './resume/session-resume.ts'
import {
  alreadySubmitted,
  notATask,
  type Problem,
  route,
  toSubmissionError,
  type IndexedProblem,
} from './routing.ts'

/** The maximum number of tasks opened per turn of the event loop, over all submissions. */
const opensPerTurn = 250
/** A submission waits while this many tasks are open, that is, have not ended. */
const maxOpenTasks = 100_000
/** The maximum number of tasks checked per turn. Checking a task is cheaper than opening it. */
const checksPerTurn = 10_000

export interface AdmissionParts {
  readonly clock: Clock
  readonly ledger: Ledger
  /** The backends, in the order in which they were added. */
  readonly bindings: readonly BackendBinding[]
}

/**
 * The tasks that passed the checks, and the target of each. A task that is being routed has no
 * target yet.
 */
interface AcceptedTasks {
  readonly tasks: AnyTask[]
  readonly targets: BackendBinding[]
  /** What each task takes from the earlier run; `null` without an earlier run. */
  readonly plans: readonly (RecordedPlan | null)[] | null
}

export class Admission {
  /** The run that the session resumes, if any. Set before the first submission. */
  earlierRun: SessionResume | null = null
  readonly #parts: AdmissionParts
  readonly #budget: TurnBudget
  readonly #queue = new Fifo<() => void>()
  #isOpening = false
  readonly #checks = new Set<Promise<void>>()
  #roomAvailable: PromiseWithResolvers<void> | null = null
  #submissions = 0
  #idle: PromiseWithResolvers<void> | null = null
  #isClosed = false

  constructor(parts: AdmissionParts) {
    this.#parts = parts
    this.#budget = new TurnBudget(parts.clock, opensPerTurn)
  }

  /**
   * Submits all tasks or none. If it rejects, the error lists all problems and no task has changed.
   * If the session is closed during the submission, all tasks of the list end CANCELED.
   */
  async submit(tasks: unknown): Promise<void> {
    this.expectOpen()
    if (!Array.isArray(tasks)) throw notAnArray('tasks', 'tasks', tasks, '[task]')
    let accepted: AcceptedTasks = { tasks: [], targets: [], plans: null }
    let opened = 0
    let hasTurn = false
    this.#submissions++
    try {
      const items = [...(tasks as unknown[])]
      const wrong: IndexedProblem[] = []
      this.#checkSlice(items, 0, accepted, wrong)
      if (items.length > checksPerTurn) {
        const rest = this.#checkRest(items, accepted, wrong)
        this.#checks.add(rest)
        await rest.finally(() => this.#checks.delete(rest))
      }
      if (wrong.length > 0) throw toSubmissionError(wrong)
      if (accepted.tasks.length === 0) return
      if (this.#isOpening) await new Promise<void>((start) => this.#queue.push(start))
      this.#isOpening = hasTurn = true
      if (this.earlierRun !== null) accepted = await this.#orderByPlan(accepted, this.earlierRun)
      let wasClosed = false
      while (opened < accepted.tasks.length) {
        wasClosed = this.#isClosed
        const room = this.#countFreeSlots()
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

  get checks(): Promise<unknown> | null {
    return this.#checks.size === 0 ? null : Promise.allSettled(this.#checks)
  }

  makeRoom(): void {
    if (this.#roomAvailable === null || this.#parts.ledger.openTasks > maxOpenTasks - opensPerTurn)
      return
    this.#roomAvailable.resolve()
    this.#roomAvailable = null
  }

  expectOpen(): void {
    if (this.#isClosed) throw closedError('the session is closed')
  }

  /**
   * Closes admission. Resolves when all running submissions have ended; `null` if there are none.
   */
  close(): Promise<void> | null {
    this.#isClosed = true
    this.#roomAvailable?.resolve()
    this.#roomAvailable = null
    if (this.#submissions === 0) return null
    this.#idle ??= Promise.withResolvers()
    return this.#idle.promise
  }

  async #checkRest(
    items: readonly unknown[],
    accepted: AcceptedTasks,
    wrong: IndexedProblem[],
  ): Promise<void> {
    for (let from = checksPerTurn; from < items.length; from += checksPerTurn) {
      await this.#budget.nextTurn()
      this.#checkSlice(items, from, accepted, wrong)
    }
  }

  #checkSlice(
    items: readonly unknown[],
    from: number,
    accepted: AcceptedTasks,
    wrong: IndexedProblem[],
  ): void {
    const until = Math.min(from + checksPerTurn, items.length)
    for (let at = from; at < until; at++) {
      const problem = this.#check(items[at], accepted)
      if (problem !== null) wrong.push({ at, ...problem })
    }
  }

  #check(item: unknown, accepted: AcceptedTasks): Problem | null {
    const { ledger, bindings } = this.#parts
    if (!(item instanceof Task)) return notATask(item)
    const task = item as AnyTask
    if (!ledger.claim(task)) return alreadySubmitted(task)
    // The task is added before it is routed, so that its claim is also withdrawn if a backend
    // throws.
    accepted.tasks.push(task)
    const found = route(task, bindings)
    const changed = this.earlierRun?.findProblem(task) ?? null
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

  #open({ tasks, targets, plans }: AcceptedTasks, from: number, max: number): number {
    const { ledger } = this.#parts
    const until = Math.min(from + max, tasks.length)
    const entries: Entry[] = []
    for (let at = from; at < until; at++) {
      const task = tasks[at]
      const target = targets[at]
      if (task === undefined || target === undefined) continue
      if (plans === null) entries.push(ledger.open(task, target))
      else this.#openRecorded(task, target, plans[at] ?? null, entries)
    }
    this.#budget.spend(until - from)
    ledger.submit(entries)
    return until - from
  }

  /**
   * Moves the tasks that have to run to the front. Otherwise, they would wait until the recorded
   * results of up to a million other tasks are in the new record.
   */
  async #orderByPlan(
    { tasks, targets }: AcceptedTasks,
    earlier: SessionResume,
  ): Promise<AcceptedTasks> {
    const plans: (RecordedPlan | null)[] = []
    // Prepares all tasks before it plans any, to find functions with the same source first. No task
    // with such a function may be given a recorded value.
    await this.#forEachInTurns(tasks, (task) => earlier.prepare(task))
    await this.#forEachInTurns(tasks, (task) => void plans.push(earlier.plan(task)))
    earlier.accepted()
    const indexes = [...plans.keys()]
    const willEnd = (at: number): boolean => plans[at]?.reuse === 'outcome'
    const order = [...indexes.filter((at) => !willEnd(at)), ...indexes.filter(willEnd)]
    return {
      tasks: order.flatMap((at) => tasks[at] ?? []),
      targets: order.flatMap((at) => targets[at] ?? []),
      plans: order.map((at) => plans[at] ?? null),
    }
  }

  async #forEachInTurns(tasks: readonly AnyTask[], use: (task: AnyTask) => void): Promise<void> {
    for (const [at, task] of tasks.entries()) {
      if (at > 0 && at % checksPerTurn === 0) await this.#budget.nextTurn()
      use(task)
    }
  }

  #openRecorded(
    task: AnyTask,
    target: BackendBinding,
    plan: RecordedPlan | null,
    entries: Entry[],
  ): void {
    const { ledger } = this.#parts
    const entry = ledger.defer(task, {
      executable: task.spec.executable,
      name: task.name,
      definitionHash: () => definitionHash(task, ledger),
      plan: (opened) => this.earlierRun?.setPlan(opened, plan),
      expected: { work: task, target },
    })
    const error = this.earlierRun?.findRefusal(entry) ?? null
    if (error !== null) return ledger.end(entry, { kind: 'fail', error })
    if (this.earlierRun?.end(entry) === true) return
    ledger.dispatch(entry, task, target)
    entries.push(entry)
  }

  /** A closed session ignores `maxOpenTasks`, because the ledger cancels each task immediately. */
  #countFreeSlots(): number {
    const { left } = this.#budget
    return this.#isClosed ? left : Math.min(left, maxOpenTasks - this.#parts.ledger.openTasks)
  }

  #waitForRoom(): Promise<void> {
    if (this.#budget.left <= 0) return this.#budget.nextTurn()
    this.#roomAvailable ??= Promise.withResolvers()
    return this.#roomAvailable.promise
  }
}

const closedError = (text: string): StateError =>
  new StateError(text, { code: 'SessionClosedError', hint: 'Create a new session.' })
