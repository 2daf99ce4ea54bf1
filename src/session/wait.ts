/** Waits for tasks to end. Giving up a wait changes no task. */

import type { AnyTask } from '../backends/backend.ts'
import type { Entry } from '../core/entry.ts'
import type { SessionCore } from '../core/session-core.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError, TimeoutError } from '../foundation/errors.ts'
import { expectKnownKeys, expectNumber, expectObject } from '../foundation/options.ts'
import { invalid, notAnArray } from '../foundation/options.ts'
import { announceWait } from '../foundation/task-context.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import { Task } from '../tasks/task.ts'

/** Limits of a wait for the ends of tasks. */
export interface WaitOptions {
  /** Default: no limit. */
  readonly timeoutSeconds?: number
  /** Ends the wait, but not the tasks. */
  readonly signal?: AbortSignal
}

/** What a wait needs from a session's core. */
type WaitCore = Pick<SessionCore, 'clock' | 'checks' | 'find'>

/** Resolves when all of the tasks have ended, in whatever state. */
export async function waitForAll(
  core: WaitCore,
  tasks: readonly AnyTask[],
  options: WaitOptions,
): Promise<void> {
  const limits = resolveWaitOptions(options)
  expectTasks(tasks)
  let open = findOpen(core, tasks)
  const { checks } = core
  if (open.missing !== null && checks === null) throw open.missing
  if (open.missing === null && open.entries.size === 0) return
  limits.signal?.throwIfAborted()
  announceWait()
  const limit = startLimit(core.clock, limits)
  try {
    if (open.missing !== null) {
      // The task may be in a long list that is still being checked.
      await Promise.race([checks, limit.reached])
      open = findOpen(core, tasks)
      if (open.missing !== null) throw open.missing
    }
    await waitForEnds(open.entries, limit.reached)
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

/** `reached` rejects when the time is over or the signal is aborted. */
function startLimit(
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
  if (!Array.isArray(tasks)) throw notAnArray('tasks', 'tasks', tasks, '[task]')
  const items = tasks as unknown[]
  const wrong = items.findIndex((item) => !(item instanceof Task))
  if (wrong !== -1) throw invalid(`tasks[${wrong}]`, 'a task', items[wrong])
}

interface OpenTasks {
  /** The entries of submitted tasks, including those of a long list that are not opened yet. */
  readonly entries: ReadonlySet<Entry>
  /** The error that names a task which this session does not know. */
  readonly missing: StateError | null
}

function findOpen(core: WaitCore, tasks: readonly AnyTask[]): OpenTasks {
  const entries = new Set<Entry>()
  for (const [at, task] of tasks.entries()) {
    if (hasEnded(task.state)) continue
    const entry = core.find(task)
    if (entry === undefined) {
      const text = `tasks[${at}] (${task.uid}) was not submitted to this session`
      return { entries, missing: new StateError(text) }
    }
    entries.add(entry)
  }
  return { entries, missing: null }
}

async function waitForEnds(entries: ReadonlySet<Entry>, limit: Promise<never>): Promise<void> {
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let left = entries.size
  if (left === 0) return
  const ended = (): void => {
    left--
    if (left === 0) resolve()
  }
  const listener = { ended, withdrawn: reject }
  for (const entry of entries) (entry.endListeners ??= new Set()).add(listener)
  try {
    await Promise.race([promise, limit])
  } finally {
    for (const entry of entries) entry.endListeners?.delete(listener)
  }
}
