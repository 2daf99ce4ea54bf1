/** Waits for the end of tasks without harming any. */

import type { AnyTask } from '../backends/backend.ts'
import type { Clock } from '../foundation/clock.ts'
import { StateError, TimeoutError } from '../foundation/errors.ts'
import { expectKnownKeys, expectNumber, expectObject, invalid } from '../foundation/options.ts'
import { announceWait } from '../foundation/task-context.ts'
import { hasEnded } from '../tasks/lifecycle.ts'
import { Task } from '../tasks/task.ts'
import type { Entry } from './entry.ts'
import type { Ledger } from './ledger.ts'

export interface WaitOptions {
  /** Default: no limit. */
  readonly timeoutSeconds?: number
  /** Ends the wait, not the tasks. */
  readonly signal?: AbortSignal
}

export interface WaitParts {
  readonly ledger: Ledger
  readonly clock: Clock
}

/** Resolves when all of the tasks have ended, whatever their end. */
export async function waitForAll(
  { ledger, clock }: WaitParts,
  tasks: readonly AnyTask[],
  options: WaitOptions,
): Promise<void> {
  expectKnownKeys('waitTasks', expectObject('options', options), ['timeoutSeconds', 'signal'])
  const { timeoutSeconds = Infinity, signal } = options
  const limitMs = expectNumber('timeoutSeconds', timeoutSeconds, { min: 0 }) * 1000
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalid('signal', 'an AbortSignal', signal)
  }
  const open = findOpen(ledger, tasks)
  if (open.size === 0) return
  signal?.throwIfAborted()
  const { promise, resolve, reject } = Promise.withResolvers<void>()
  let left = open.size
  const hear = (): void => {
    left--
    if (left === 0) resolve()
  }
  for (const entry of open) (entry.waiters ??= new Set()).add(hear)
  const abort = (): void => reject(signal?.reason)
  signal?.addEventListener('abort', abort, { once: true })
  const timeOut = (): void =>
    reject(new TimeoutError(`not all tasks ended within ${timeoutSeconds} s`))
  const cancelTimer = limitMs === Infinity ? () => {} : clock.after(limitMs, timeOut)
  announceWait()
  try {
    await promise
  } finally {
    cancelTimer()
    signal?.removeEventListener('abort', abort)
    for (const entry of open) entry.waiters?.delete(hear)
  }
}

function findOpen(ledger: Ledger, tasks: readonly AnyTask[]): Set<Entry> {
  if (!Array.isArray(tasks)) throw invalid('tasks', 'an array of tasks', tasks)
  const open = new Set<Entry>()
  for (const [at, task] of (tasks as AnyTask[]).entries()) {
    if (!(task instanceof Task)) throw invalid(`tasks[${at}]`, 'a task', task)
    if (hasEnded(task.state)) continue
    const entry = ledger.find(task)
    if (entry === undefined) {
      throw new StateError(`tasks[${at}] (${task.uid}) was not submitted to this session`)
    }
    open.add(entry)
  }
  return open
}
