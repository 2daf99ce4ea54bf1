/** Waits for the end of tasks without harming any. */

import type { AnyTask } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError, TimeoutError } from '../foundation/errors.ts'
import { expectKnownKeys, expectNumber, expectObject, invalid } from '../foundation/options.ts'
import { announceWait } from '../foundation/task-context.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import { Task } from '../tasks/task.ts'
import type { Entry } from '../core/entry.ts'
import type { Intake } from '../core/admission.ts'
import type { Ledger } from '../core/ledger.ts'

/** How long to wait for the ends of tasks. */
export interface WaitOptions {
  /** Default: no limit. */
  readonly timeoutSeconds?: number
  /** Ends the wait, not the tasks. */
  readonly signal?: AbortSignal
}

export interface WaitParts {
  readonly ledger: Ledger
  readonly intake: Intake
  readonly clock: Clock
}

/** Resolves when all of the tasks have ended, whatever their end. */
export async function waitForAll(
  parts: WaitParts,
  tasks: readonly AnyTask[],
  options: WaitOptions,
): Promise<void> {
  const limits = resolveWaitOptions(options)
  expectTasks(tasks)
  let open = findOpen(parts, tasks)
  const { checks } = parts.intake
  if (open.missing !== null && checks === null) throw open.missing
  if (open.missing === null && open.entries.size + open.promised.size === 0) return
  limits.signal?.throwIfAborted()
  announceWait()
  const limit = beginLimit(parts.clock, limits)
  try {
    if (open.missing !== null) {
      // It may be in a long list whose check is under way.
      await Promise.race([checks, limit.reached])
      open = findOpen(parts, tasks)
      if (open.missing !== null) throw open.missing
    }
    await waitForEnds(parts, open, limit.reached)
  } finally {
    limit.release()
  }
}

interface Limits {
  readonly timeoutSeconds: number
  readonly signal: AbortSignal | null
}

function resolveWaitOptions(options: WaitOptions): Limits {
  expectKnownKeys('waitTasks', expectObject('options', options), ['timeoutSeconds', 'signal'])
  const { timeoutSeconds = Infinity, signal } = options
  expectNumber('timeoutSeconds', timeoutSeconds, { min: 0, mayBeInfinite: true })
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalid('signal', 'an AbortSignal', signal)
  }
  return { timeoutSeconds, signal: signal ?? null }
}

/** `reached` rejects when the time is over or the signal comes. */
function beginLimit(
  clock: Clock,
  { timeoutSeconds, signal }: Limits,
): { reached: Promise<never>; release: () => void } {
  const { promise: reached, reject } = Promise.withResolvers<never>()
  const abort = (): void => reject(signal?.reason)
  signal?.addEventListener('abort', abort, { once: true })
  const timeOut = (): void =>
    reject(new TimeoutError(`not all tasks ended within ${timeoutSeconds} s`))
  const cancelTimer =
    timeoutSeconds === Infinity ? () => {} : clock.after(timeoutSeconds * 1000, timeOut)
  const release = (): void => {
    cancelTimer()
    signal?.removeEventListener('abort', abort)
  }
  return { reached, release }
}

function expectTasks(tasks: unknown): void {
  if (!Array.isArray(tasks)) throw invalid('tasks', 'an array of tasks', tasks)
  const items = tasks as unknown[]
  const wrong = items.findIndex((item) => !(item instanceof Task))
  if (wrong !== -1) throw invalid(`tasks[${wrong}]`, 'a task', items[wrong])
}

interface Open {
  readonly entries: ReadonlySet<Entry>
  /** Accepted, but not yet with the ledger. */
  readonly promised: ReadonlySet<AnyTask>
  /** Names a task that this session does not know. */
  readonly missing: StateError | null
}

function findOpen({ ledger }: WaitParts, tasks: readonly AnyTask[]): Open {
  const entries = new Set<Entry>()
  const promised = new Set<AnyTask>()
  for (const [at, task] of tasks.entries()) {
    if (hasEnded(task.state)) continue
    const entry = ledger.find(task)
    if (entry !== undefined) entries.add(entry)
    else if (ledger.isPromised(task)) promised.add(task)
    else {
      const text = `tasks[${at}] (${task.uid}) was not submitted to this session`
      return { entries, promised, missing: new StateError(text) }
    }
  }
  return { entries, promised, missing: null }
}

async function waitForEnds(
  { intake }: WaitParts,
  { entries, promised }: Open,
  limit: Promise<never>,
): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let left = entries.size + promised.size
  if (left === 0) return
  const hear = (): void => {
    left--
    if (left === 0) resolve()
  }
  for (const entry of entries) (entry.waiters ??= new Set()).add(hear)
  const watcher = { hear, fail: reject }
  for (const task of promised) intake.watch(task, watcher)
  try {
    await Promise.race([promise, limit])
  } finally {
    for (const entry of entries) entry.waiters?.delete(hear)
    for (const task of promised) intake.unwatch(task, watcher)
  }
}
