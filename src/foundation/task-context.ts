/**
 * Which task the running code belongs to. Backends set it, spans ask for it, and neither knows the
 * other.
 */

import { AsyncLocalStorage } from 'node:async_hooks'

const running = new AsyncLocalStorage<string>()

/** Runs `callback` as part of the task `uid`, across everything it awaits. */
export function runInTask<T>(uid: string, callback: () => T): T {
  return running.run(uid, callback)
}

/** The uid of the task that the calling code runs in, if any. */
export function currentTask(): string | undefined {
  return running.getStore()
}
