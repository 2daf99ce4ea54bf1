/** Waits for tasks to end. Ending a wait early does not affect the tasks. */

import type { AnyTask } from '../backends/backend.ts'
import type { EndListener, Entry } from '../core/entry.ts'
import type { SessionCore } from '../core/session-core.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError, TimeoutError } from '../foundation/errors.ts'
import {
  expectKnownKeys,
  expectNumber,
  expectObject,
  invalid,
  notAnArray,
} from '../foundation/options.ts'
import { announceWait } from '../foundation/task-context.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import { endNumber } from '../tasks/task-record.ts'
import { Task } from '../tasks/task.ts'

/** When a wait for tasks ends early. */
export interface WaitOptions {
  /** The maximum number of seconds to wait. Default: no limit. */
  readonly timeoutSeconds?: number
  /** Aborting this signal ends the wait, but not the tasks. */
  readonly signal?: AbortSignal
}

type WaitCore = Pick<SessionCore, 'clock' | 'checks' | 'find'>

export async function waitForAll(
  core: WaitCore,
  tasks: readonly AnyTask[],
  options: WaitOptions,
): Promise<void> {
  const limits = resolveWaitOptions('waitTasks', options)
  expectTasks(tasks)
  let open = findOpenTasks(core, tasks)
  const { checks } = core
  if (open.missing !== null && checks === null) throw open.missing
  if (open.missing === null && open.entries.length === 0) return
  limits.signal?.throwIfAborted()
  announceWait()
  const { promise: limit, reject } = Promise.withResolvers<never>()
  const release = startLimits(core.clock, limits, reject)
  try {
    if (open.missing !== null) {
      // The task may belong to a submission that is still being checked.
      await Promise.race([checks, limit])
      open = findOpenTasks(core, tasks)
      if (open.missing !== null) throw open.missing
    }
    await waitForEntries(open.entries, limit)
  } finally {
    release()
  }
}

/**
 * An async iterator of tasks. Not declared as `AsyncIterator`, because TypeScript would then give
 * the variable of a `for await` loop the type of the task's value instead of the task.
 */
export interface CompletedTasks<T extends AnyTask> {
  /** Returns the iterator itself. */
  [Symbol.asyncIterator](): CompletedTasks<T>
  /** Resolves with the next ended task. Rejects on a time-out or when the signal is aborted. */
  next(): Promise<IteratorResult<T, undefined>>
  /** Called when a loop is left early. The tasks are not affected. */
  return(): Promise<IteratorResult<T, undefined>>
}

/**
 * Returns tasks in the order in which they end. It is not an async generator, because `yield` would
 * await the task, so that a failed task would end the iteration.
 */
export class EndedTasks<T extends AnyTask> implements CompletedTasks<T> {
  readonly #core: WaitCore
  readonly #endedTasks: T[] = []
  /** The number of tasks in `#endedTasks` that `next` has already returned. */
  #yieldedCount = 0
  readonly #openTasks = new Map<Entry, EndListener>()
  #isChecking = false
  #failure: { readonly error: unknown } | null = null
  #change = Promise.withResolvers<void>()
  readonly #releaseLimits: () => void

  constructor(core: WaitCore, tasks: readonly T[], options: WaitOptions) {
    const limits = resolveWaitOptions('asCompleted', options)
    expectTasks(tasks)
    limits.signal?.throwIfAborted()
    this.#core = core
    this.#watch([...new Set(tasks)])
    this.#releaseLimits = startLimits(core.clock, limits, (error) => this.#fail(error))
    this.#releaseIfComplete()
  }

  [Symbol.asyncIterator](): this {
    return this
  }

  async next(): Promise<IteratorResult<T, undefined>> {
    for (;;) {
      const task = this.#endedTasks[this.#yieldedCount]
      if (task !== undefined) {
        this.#yieldedCount++
        return { done: false, value: task }
      }
      if (this.#failure !== null) throw this.#failure.error
      if (this.#isComplete) return { done: true, value: undefined }
      announceWait()
      await this.#change.promise
    }
  }

  async return(): Promise<IteratorResult<T, undefined>> {
    this.#stop()
    this.#yieldedCount = this.#endedTasks.length
    return { done: true, value: undefined }
  }

  get #isComplete(): boolean {
    return this.#openTasks.size === 0 && !this.#isChecking
  }

  #watch(tasks: readonly T[]): void {
    const { entries, missing } = findOpenTasks(this.#core, tasks)
    const { checks } = this.#core
    if (missing !== null && (checks === null || this.#isChecking)) throw missing
    if (missing !== null && checks !== null) {
      // The task may belong to a submission that is still being checked.
      this.#isChecking = true
      void checks.then(() => this.#watchChecked(tasks))
      return
    }
    const ended = tasks.filter(({ state }) => hasEnded(state))
    for (const task of ended.toSorted((a, b) => a[endNumber] - b[endNumber])) {
      this.#endedTasks.push(task)
    }
    for (const entry of entries) this.#listen(entry)
  }

  #watchChecked(tasks: readonly T[]): void {
    // The iteration may have ended in the meantime.
    if (!this.#isChecking) return
    try {
      this.#watch(tasks)
      this.#isChecking = false
      this.#notifyChange()
    } catch (error) {
      this.#fail(error)
    }
  }

  #listen(entry: Entry): void {
    const onEnded = (): void => {
      this.#openTasks.delete(entry)
      this.#endedTasks.push(entry.task as T)
      this.#notifyChange()
    }
    const listener = { ended: onEnded, withdrawn: (error: unknown) => this.#fail(error) }
    this.#openTasks.set(entry, listener)
    entry.addEndListener(listener)
  }

  #fail(error: unknown): void {
    this.#failure = { error }
    this.#stop()
  }

  #stop(): void {
    for (const [entry, listener] of this.#openTasks) entry.removeEndListener(listener)
    this.#openTasks.clear()
    this.#isChecking = false
    this.#notifyChange()
  }

  #notifyChange(): void {
    this.#releaseIfComplete()
    this.#change.resolve()
    this.#change = Promise.withResolvers()
  }

  #releaseIfComplete(): void {
    if (this.#isComplete) this.#releaseLimits()
  }
}

function resolveWaitOptions(method: string, options: WaitOptions) {
  expectKnownKeys(method, expectObject('options', options), ['timeoutSeconds', 'signal'])
  const { timeoutSeconds = Infinity, signal } = options
  expectNumber('timeoutSeconds', timeoutSeconds, { min: 0, mayBeInfinite: true })
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalid('signal', 'an AbortSignal', signal)
  }
  return { timeoutSeconds, signal: signal ?? null }
}

function startLimits(
  clock: Clock,
  { timeoutSeconds, signal }: ReturnType<typeof resolveWaitOptions>,
  onReached: (error: unknown) => void,
): () => void {
  const abort = (): void => onReached(signal?.reason)
  signal?.addEventListener('abort', abort, { once: true })
  const timeOut = (): void =>
    onReached(new TimeoutError(`not all tasks ended within ${timeoutSeconds} s`))
  const cancelTimer =
    timeoutSeconds === Infinity ? () => {} : clock.after(timeoutSeconds * 1000, timeOut)
  return () => {
    cancelTimer()
    signal?.removeEventListener('abort', abort)
  }
}

function expectTasks(tasks: unknown): void {
  if (!Array.isArray(tasks)) throw notAnArray('tasks', 'tasks', tasks, '[task]')
  const items = tasks as unknown[]
  const invalidIndex = items.findIndex((item) => !(item instanceof Task))
  if (invalidIndex !== -1) throw invalid(`tasks[${invalidIndex}]`, 'a task', items[invalidIndex])
}

/**
 * Returns the ledger's entries of tasks that have not ended. Also returns an error for the first
 * task that was not submitted to this session; `null` if all were submitted.
 */
function findOpenTasks(
  core: WaitCore,
  tasks: readonly AnyTask[],
): { readonly entries: readonly Entry[]; readonly missing: StateError | null } {
  const entries: Entry[] = []
  for (const [at, task] of tasks.entries()) {
    if (hasEnded(task.state)) continue
    const entry = core.find(task)
    if (entry === undefined) {
      const text = `tasks[${at}] (${task.uid}) was not submitted to this session`
      return { entries, missing: new StateError(text) }
    }
    entries.push(entry)
  }
  return { entries, missing: null }
}

async function waitForEntries(entries: readonly Entry[], limit: Promise<never>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let openCount = entries.length
  if (openCount === 0) return
  const ended = (): void => {
    openCount--
    if (openCount === 0) resolve()
  }
  const listener = { ended, withdrawn: reject }
  for (const entry of entries) entry.addEndListener(listener)
  try {
    await Promise.race([promise, limit])
  } finally {
    if (openCount > 0) for (const entry of entries) entry.removeEndListener(listener)
  }
}
