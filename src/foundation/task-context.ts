/**
 * Which task the running code belongs to. Backends set it, spans ask for it, and neither knows the
 * other.
 */

import { AsyncLocalStorage } from 'node:async_hooks'

interface RunningTask {
  readonly uid: string
  readonly onWait: (() => void) | null
}

const running = new AsyncLocalStorage<RunningTask>()

/**
 * Runs `callback` as part of the task `uid`, across everything it awaits. `onWait` is called
 * whenever it begins to wait for another task: it may hold a place which that one needs.
 */
export function runInTask<T>(
  uid: string,
  callback: () => T,
  onWait: (() => void) | null = null,
): T {
  return running.run({ uid, onWait }, callback)
}

/** The uid of the task that the calling code runs in, if any. */
export function currentTask(): string | undefined {
  return running.getStore()?.uid
}

/** The calling code is about to wait for a task. */
export function announceWait(): void {
  running.getStore()?.onWait?.()
}
